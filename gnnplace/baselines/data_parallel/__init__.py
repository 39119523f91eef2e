"""Data parallelism: each device works on micro-batches of its own (docs/execution-model.md#replicas)."""

"""A program: traces a tf.function under an exported device function, on CPUs as many as its devices, and prints what it found.

python -m support.placed_function FOLDER  # with device_function.py, in tests/
"""

from __future__ import annotations

import json
import sys


def main(folder: str) -> None:
    import tensorflow as tf

    (cpu,) = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    tf.config.set_soft_device_placement(False)
    sys.path.insert(0, folder)
    import device_function
    from support.tensorflow_functions import step, variables

    x = tf.random.stateless_normal((8, 16), (1, 2))
    plain = variables()
    expected = [step(plain)(x).numpy().tolist() for _ in range(2)]
    placed = variables(lambda op: tf.device(device_function.DEVICES[op]))
    body = device_function.placed()(step(placed).python_function)
    traced = tf.function(body).get_concrete_function(tf.TensorSpec((8, 16)))
    found = [traced(x).numpy().tolist() for _ in range(2)]
    devices = {op.name: op.device for op in traced.graph.get_operations() if op.name in device_function.DEVICES}
    print(json.dumps({"expected": expected, "found": found, "devices": devices, "ops": [variable.device for variable in placed]}))


if __name__ == "__main__":
    main(sys.argv[1])

"""Programs that exports put beside what they write. They run without gnnplace."""

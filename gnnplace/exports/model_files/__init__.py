"""Programs that exports add to the folders they write. They run without gnnplace."""

"""Bearer tokens: whom they name, and the keys that ours are signed with."""

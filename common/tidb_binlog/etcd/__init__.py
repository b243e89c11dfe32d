"""etcd: a key-value client and the registry on top of it."""

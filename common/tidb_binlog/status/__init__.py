"""What nodes say of themselves at `/status`: one schema for those that write and read it."""

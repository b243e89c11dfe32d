"""What tests of programs need that extend a Drainer: `drainer.testing.sink_contract`."""

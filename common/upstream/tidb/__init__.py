"""The upstream of a real cluster: PD for timestamps and places, TiKV for transactions and DDL history."""

"""Bundles from measurements that others made: profiled tables of layers, or whole steps.

Reading order: csv_table (strict CSV), profile (which sizes, of which model), profiled_tables (their bundle)
with layer_table, dense_table, attention_table, skew_table, moe_table, mtp_table; whole_steps (their CSV).
"""

"""The compiled core: vLLM V1's scheduling, a router, and a clock. Imports numpy, numba, enum and typing only.

Reading order: kinds (words), tables, rules (what never changes), state, kv_state and client_state (what
does); loop (time and router windows), clients (those that wait for answers), engine_core (one instance: when
it schedules, when a step ends), scheduler (one schedule call), admission (its second half), budget,
kv_cache_manager and block_pool (memory and prefix cache), preemption, draft_length, after_schedule (what
counts as done), step_time (how long), acceptance, output (what a step delivers), aborts, request_queue,
router, routers and balancer, outage (instances that stop), metrics, streams (randomness), jit (compilation),
by_hand (one core, call by call), invariants (what must always hold).
"""

"""What --help prints."""

HELP = """\
usage: python -m cluster_sim [OPTION ...] [OVERRIDE ...]
       python -m cluster_sim COMMAND [ARGUMENT ...]

Does speculative decoding pay for your traffic, with which draft length, on how
many instances?

commands:
  (none)                simulate one cluster under one load, or run the sweep
                        or the study that an override names
  validate DIR          replay a measured run of vLLM: error of each latency and
                        of the throughput; --bundle NAME_OR_PATH,
                        --set KEY=VALUE (again and again), --json FILE
  validate --published  speed-ups that others published beside this tool's
                        predictions; --json FILE
  calibrate FILE...     results of `vllm bench serve` or responses of SGLang
                        become an acceptance profile and a scaled bundle, with
                        intervals; so do two scrapes of /metrics or more:
                        --metrics-before FILE, --metrics-after FILE (again
                        for the next load, or the next server),
                        --metrics-seconds LIST from each to its next;
                        --bundle NAME_OR_PATH; --fit LIST of gpu (default),
                        dense, attention, drafter, host_overhead_s, or none;
                        --fit-to LIST of tpot (default), itl, itl_per_token,
                        ttft, e2el; --name NAME; --output DIR; overrides say
                        what the server was
  import-bundle PATH    profiled tables or a CSV of measured steps become a
                        step-time bundle; --model, --hardware,
                        --tensor-parallel-size, --source, --licence where they
                        do not say so themselves
  report DIR            the page of results, from what is stored alone:
                        report.html in DIR; --markdown: report.md and figures
  report --compare A B  two results side by side, paired where they served the
                        same arrivals; --output FILE: as a page
  export DIR            results in the formats of others, as stored: --format
                        vllm-bench (JSON of vllm bench serve; of a sweep the
                        tree of vllm bench sweep, or --trial N of it;
                        --save-detailed), csv or jsonl (a row per request),
                        prometheus (vLLM's /metrics), timed-trace (the traffic,
                        for vllm bench serve to replay); --output PATH
  replay-vllm PATH...   replay recorded runs of vLLM's scheduler; exit code 1
                        when one differs
  trace describe FILE   what is in a trace: format, rates, burstiness, lengths,
                        classes, sessions, shared prefixes, oddities;
                        --json FILE
  list WHAT             names of: models, hardware, bundles, routers, proposers,
                        policies, profiles, sweeps, studies

overrides (Hydra's grammar):
  KEY=VALUE             a value:         workload.request_rate=20
  GROUP=OPTION          a file of conf/: speculation=none  executor=ray
  +sweep=NAME           a sweep:         +sweep=spec_grid
                                         'sweep.axes.cluster.instances=[1,2,4]'
  +study=NAME           a study:         +study=draft_schedule study.trials=200
                                         +study=slo_tuning  +study=slo_load
  hydra.searchpath=[DIR]
                        more options:    DIR/model/mine.yaml, as model=mine

options:
  -c, --cfg job         print the configuration that would run, and do nothing
  --config FILE         start from the configuration in FILE, for example the
                        best.yaml of a study or the manifest.yaml of a run
  --debug               show where an error comes from
  --version             print the version
  -h, --help            print this

examples:
  python -m cluster_sim
  python -m cluster_sim workload.trace=requests.csv cluster.instances=4
  python -m cluster_sim workload=closed_loop workload.max_concurrency=64
  python -m cluster_sim +sweep=spec_grid output.dir=results
  python -m cluster_sim +sweep=concurrency
  python -m cluster_sim +study=draft_schedule
"""

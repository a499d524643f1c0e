"""The programs that the fleet is measured against, each set up as its own pages advise.

- `consumers`: their workers as processes, and how fast they end no-op jobs once they are warm.
- `procrastinate`, `pgqueuer`, `celery`: one module a peer. Each fills its queue, lets its workers
  empty it, and checks that every job was done. Run as a program, the module is such a worker.

What is measured of a peer is consuming alone: neither the start of its workers nor the filling of
its queue, and neither the first nor the last tenth of the jobs. Where its pages leave a choice, all
of them are tried and the fastest counts.
"""

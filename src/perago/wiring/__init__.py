"""The only place that builds adapters: connections, ports, jobs and Spark from settings."""

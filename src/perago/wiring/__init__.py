"""What is built from settings: connections, the ports of attempts, jobs and Spark."""

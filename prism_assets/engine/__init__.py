"""How kernels run: on Spark, or in this process for tests and small installations."""

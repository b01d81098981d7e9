"""PTX executed on the CPU, many threads at once: numpy arrays in which each element is one thread's register."""

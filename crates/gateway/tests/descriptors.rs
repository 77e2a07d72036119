//! Running out of file descriptors. A suite of its own, for the limit is the whole process's.

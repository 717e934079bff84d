//! CPU time: of this process, of others, of the machine; and where threads run.

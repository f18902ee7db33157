//! Hosts in network namespaces on one machine, for tests and for the demo.

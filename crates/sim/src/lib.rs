//! Virtual clock and links, faults, checkers, scenarios; runs the shipped loop.

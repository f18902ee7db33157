//! What may happen to a transfer, and how each ends: proven, or with who, why and how far. Nothing
//! half-written is ever seen under its final name, and nobody is sent again what it holds.

mod clock;
mod disks;
mod kills;
mod links;
mod many;
mod scene;
mod watch;

//! Laws that hold for every input, tried on random ones against naive models.

mod checksum;
mod hostile;
mod identity;
mod objects;
mod packets;
mod sqn;

//! Move data over IP networks completely, one-to-one and one-to-many.

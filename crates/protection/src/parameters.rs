//! The limits of what the protection of packets remembers: rows of the one table of parameters.

// name: type = value, unit, role [set by flag], source, help
base::parameters! {
    PROTECTED_SESSIONS_MAX: u32 = 1024, "sessions", Receiver,
        "judgement: more than a host hears; each holds its keys and 8 kB of numbers",
        "protected sessions that a receiver tells apart; the one that was silent for longest makes \
         room";
    PROTECTED_RECEIVERS_MAX: u32 = 10_000, "receivers", Source,
        "as many as a sender serves",
        "receivers whose NAKs a protected sender tells from repetitions; the one that was silent \
         for longest makes room";
    NOTICES_MAX: u32 = 16, "hosts", Both,
        "judgement: a screen of lines",
        "hosts without the key of which a person is told; those beyond are counted";
}

-- The same inside a transaction, for verdicts that do not fit into one packet.
CALL `pillarbox_outbox_settle_rows`(?, ?)

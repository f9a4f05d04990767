-- The same inside a transaction: the caller's own, or ours for verdicts that do not fit into one packet.
CALL `pillarbox_outbox_settle_rows`(? /*guard*/, ?)

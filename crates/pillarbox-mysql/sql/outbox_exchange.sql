-- Settling and claiming in one round trip and one transaction.
CALL `pillarbox_outbox_exchange`(?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

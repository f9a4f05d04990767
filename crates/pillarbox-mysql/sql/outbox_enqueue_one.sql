-- One message, everything in one round trip: the check for an open transaction, the insert, the look at the shelf.
CALL `pillarbox_outbox_enqueue_one`(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

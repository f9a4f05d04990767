-- MySQL has no variable that tells whether a transaction is open, so it is asked before a batch. MariaDB is not.
CALL `pillarbox_outbox_require_tx`()

-- The store's own transactions never lock gaps, whatever the session's default. The first statement fails when somebody
-- left a transaction open on the pooled connection, so that its work is never committed by us (H31).
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
START TRANSACTION

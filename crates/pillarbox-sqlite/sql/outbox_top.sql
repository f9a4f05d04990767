-- The highest row there is, for a claim that leaves topics out: what it walked over need not be walked over again.
SELECT max(id) FROM pillarbox_outbox;

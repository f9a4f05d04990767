-- The same guard for rows of one claim that stand beside each other, which most do: those from ?2 to ?3, all of them or none. So nothing is
-- searched for, and nothing need be answered but that it was done; where a row is missing, outbox_settle_remove_claim.sql tells which.
DELETE FROM pillarbox_outbox
 WHERE id BETWEEN ?2 AND ?3 AND fence = ?4 AND owner_token = ?1
   AND (SELECT count(*) FROM pillarbox_outbox
         WHERE id BETWEEN ?2 AND ?3 AND fence = ?4 AND owner_token = ?1) = ?3 - ?2 + 1;

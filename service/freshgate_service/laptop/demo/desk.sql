-- A small support desk and its accounts: what the demo remembers, entitles and refreshes.
CREATE TABLE accounts (
  id integer PRIMARY KEY,
  name text NOT NULL,
  region text NOT NULL,
  plan text NOT NULL,
  about text NOT NULL
);

CREATE TABLE tickets (
  id integer PRIMARY KEY,
  account_id integer NOT NULL REFERENCES accounts,
  subject text NOT NULL,
  description text NOT NULL,
  assignee text NOT NULL,
  updated_at timestamptz NOT NULL DEFAULT now()
);

INSERT INTO accounts VALUES
  (1, 'Alpenglow Outdoor', 'emea', 'enterprise', 'Retailer of climbing gear in Innsbruck. Pays by invoice, refunds go through their finance desk. Renewal in March.'),
  (2, 'Fjordline Ferries', 'emea', 'business', 'Ferry operator in Bergen. Uses the booking webhooks heavily; a failed webhook is an incident for them.'),
  (3, 'Desert Bloom Nursery', 'amer', 'starter', 'Plant nursery in Tucson. Seasonal peaks in spring, one shared login, prefers phone calls.'),
  (4, 'Great Lakes Optics', 'amer', 'enterprise', 'Lens maker in Duluth. Contract allows refunds of up to 5000 dollars without approval.');

INSERT INTO tickets (id, account_id, subject, description, assignee) VALUES
  (101, 1, 'Refund for a duplicate invoice', 'Invoice 20417 was charged twice. Finance asks for a refund of 1,240 euros before the end of the quarter. The duplicate came from a retry of the payment job.', 'ana@desk.example'),
  (102, 1, 'Single sign-on loops back to the login page', 'After the certificate was renewed, users are sent back to the login page. Clearing cookies helps for an hour.', 'ben@desk.example'),
  (103, 2, 'Webhook deliveries arrive twice', 'Each booking webhook is delivered twice since Tuesday. The second delivery carries the same idempotency key.', 'ana@desk.example'),
  (104, 2, 'Export of passenger lists times out', 'The nightly export stops after 30 seconds when a sailing has more than 900 passengers.', 'ben@desk.example'),
  (105, 3, 'Refund for a cancelled spring order', 'The customer cancelled 40 fruit trees and asks for a refund to the original card. Two payments are involved.', 'carla@desk.example'),
  (106, 3, 'Cannot reset the shared password', 'The reset mail goes to a mailbox nobody reads any more. They ask for a phone call instead.', 'dan@desk.example'),
  (107, 4, 'Refund above the contract limit', 'They ask for a refund of 7,800 dollars for a batch of scratched lenses, above the limit in the contract. Legal is informed.', 'carla@desk.example'),
  (108, 4, 'Rounding differs between quote and invoice', 'Quotes round each line, invoices round the total. The difference is at most 3 cents, but their auditor asks.', 'dan@desk.example');

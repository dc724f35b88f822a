CREATE TYPE member_role AS ENUM ('guest', 'member', 'moderator', 'admin');
CREATE DOMAIN handle AS text CONSTRAINT handle_form CHECK (VALUE ~ '^[a-z][a-z0-9_]{2,20}$') NOT NULL;
CREATE FUNCTION touch() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.changed_at := now(); RETURN NEW; END $$;
CREATE TABLE members (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name handle UNIQUE, role member_role NOT NULL DEFAULT 'guest',
  email varchar(200) CHECK (email LIKE '%@%'), state varchar(10) CHECK (state IN ('new', 'seen', 'gone')),
  changed_at timestamptz NOT NULL DEFAULT now());
CREATE TABLE topics (
  id serial PRIMARY KEY, title text NOT NULL CHECK (length(title) BETWEEN 3 AND 200 AND title <> 'test'),
  author bigint NOT NULL REFERENCES members ON DELETE CASCADE, parent int REFERENCES topics DEFERRABLE INITIALLY DEFERRED,
  pinned boolean DEFAULT false, tags text[] DEFAULT '{}', changed_at timestamptz);
CREATE TABLE posts (
  id bigserial PRIMARY KEY, topic int REFERENCES topics (id), author bigint REFERENCES members (id) ON UPDATE CASCADE,
  body text NOT NULL, words int GENERATED ALWAYS AS (array_length(string_to_array(body, ' '), 1)) STORED);
CREATE INDEX posts_by_topic ON posts (topic, id DESC) INCLUDE (author) WHERE body <> '';
CREATE INDEX members_lower ON members (lower(email) text_pattern_ops);
CREATE UNIQUE INDEX one_pin ON topics (author) NULLS NOT DISTINCT WHERE pinned AND title <> '';
CREATE TRIGGER touch BEFORE UPDATE ON members FOR EACH ROW WHEN (OLD.* IS DISTINCT FROM NEW.*) EXECUTE FUNCTION touch();
CREATE TRIGGER touch BEFORE UPDATE OF title ON topics FOR EACH ROW EXECUTE FUNCTION touch();
CREATE VIEW active_members AS SELECT id, name, role FROM members WHERE role IN ('member', 'moderator') AND state = 'seen';
CREATE VIEW busy AS SELECT m.id, m.name, count(p.id) AS posts FROM active_members m LEFT JOIN posts p ON p.author = m.id GROUP BY m.id, m.name;
CREATE MATERIALIZED VIEW top AS SELECT * FROM busy ORDER BY posts DESC LIMIT 10;
CREATE UNIQUE INDEX top_id ON top (id);
COMMENT ON TABLE topics IS 'What people talk about; it''s \ all here';
COMMENT ON COLUMN topics.pinned IS 'On top';
COMMENT ON CONSTRAINT members_pkey ON members IS 'The key';
GRANT SELECT ON topics, posts TO ops;
GRANT SELECT (id, name), UPDATE (name) ON members TO ops;

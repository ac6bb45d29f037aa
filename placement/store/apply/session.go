package apply

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/placement/store/command"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/placement/store/tables"
)

const (
	// MaxSessions bounds the sessions: the session that was idle for the longest time is evicted.
	// The results of commands depend on these limits, so they cannot be configured.
	MaxSessions = 4096
	// MaxKept bounds the answers that a session keeps, and so its pending commands.
	MaxKept = 128
	// maxAnswerBytes bounds a kept answer. Of a larger answer only the success is kept.
	maxAnswerBytes = 64 << 10
)

// session is the in-memory part of a session; the answers are in the database only.
type session struct{ record *storepb.SessionRecord }

// once evaluates a command, unless its session shows that the command was evaluated before.
func (a *Application) once(c *storepb.Command) (*storepb.Result, error) {
	if c.Session == 0 || c.Sequence == 0 {
		return a.execute(c)
	}
	result := &storepb.Result{Revision: a.Meta.Revision}
	s := a.machine.sessions[c.Session]
	if s == nil {
		command.Refuse(result, storepb.Code_SESSION_UNKNOWN, "session %d is not known any more",
			c.Session)
		return result, nil
	}
	r := s.record
	r.Used = a.Index
	if err := a.forget(c.Session, r, c.Acknowledged); err != nil {
		return nil, err
	}
	at, done := slices.BinarySearch(r.Kept, c.Sequence)
	switch {
	case done:
		kept, err := a.answer(c.Session, c.Sequence)
		if err != nil {
			return nil, err
		}
		return kept, a.set(a.machine.layout.Session(c.Session), r)
	case c.Sequence <= r.Forgotten:
		command.Refuse(result, storepb.Code_SESSION_FORGOTTEN,
			"command %d of session %d was acknowledged",
			c.Sequence, c.Session)
		return result, a.set(a.machine.layout.Session(c.Session), r)
	case len(r.Kept) >= MaxKept:
		command.Refuse(result, storepb.Code_SESSION_FULL,
			"session %d has %d commands that are not acknowledged", c.Session, MaxKept)
		return result, a.set(a.machine.layout.Session(c.Session), r)
	}
	result, err := a.execute(c)
	if err != nil {
		return nil, err
	}
	r.Kept = slices.Insert(r.Kept, at, c.Sequence)
	keep := result
	if proto.Size(result) > maxAnswerBytes {
		keep = &storepb.Result{Revision: result.Revision, Code: result.Code,
			Message: "the answer was too large to be kept"}
		if result.Txn != nil {
			keep.Txn = &storepb.TxnResult{Succeeded: result.Txn.Succeeded}
		}
	}
	if err := a.set(a.machine.layout.Answer(c.Session, c.Sequence), keep); err != nil {
		return nil, err
	}
	return result, a.set(a.machine.layout.Session(c.Session), r)
}

// forget removes the answers up to a sequence.
func (a *Application) forget(id uint64, r *storepb.SessionRecord, upTo uint64) error {
	n, found := slices.BinarySearch(r.Kept, upTo)
	if found {
		n++
	}
	for _, sequence := range r.Kept[:n] {
		if err := a.batch.Delete(a.machine.layout.Answer(id, sequence), nil); err != nil {
			return err
		}
	}
	r.Kept = slices.Delete(r.Kept, 0, n)
	r.Forgotten = max(r.Forgotten, upTo)
	return nil
}

func (a *Application) answer(id, sequence uint64) (*storepb.Result, error) {
	result := &storepb.Result{}
	err := a.read(func(r *tables.Reader) error {
		value, ok, err := r.Get(r.Answer(id, sequence))
		if err == nil && !ok {
			err = fmt.Errorf("the answer of command %d of session %d is missing", sequence, id)
		}
		if err == nil {
			err = proto.Unmarshal(value, result)
		}
		return err
	})
	result.Repeated = true
	return result, err
}

// openSession makes a session. Its id is the index of its command, which no other session ever had.
func (a *Application) openSession(result *storepb.Result) error {
	sessions := a.machine.sessions
	if len(sessions) >= MaxSessions {
		var oldest uint64
		for id, s := range sessions {
			// No two sessions have the same Used: each entry uses at most one session.
			if oldest == 0 || s.record.Used < sessions[oldest].record.Used {
				oldest = id
			}
		}
		if err := a.closeSession(oldest); err != nil {
			return err
		}
	}
	result.Session = a.Index
	s := &session{&storepb.SessionRecord{Used: a.Index}}
	sessions[a.Index] = s
	return a.set(a.machine.layout.Session(a.Index), s.record)
}

func (a *Application) closeSession(id uint64) error {
	s := a.machine.sessions[id]
	if s == nil {
		return nil
	}
	delete(a.machine.sessions, id)
	for _, sequence := range s.record.Kept {
		if err := a.batch.Delete(a.machine.layout.Answer(id, sequence), nil); err != nil {
			return err
		}
	}
	return a.batch.Delete(a.machine.layout.Session(id), nil)
}

// loadSessions reads the session table, on opening and after a snapshot was installed.
func loadSessions(r *tables.Reader) (map[uint64]*session, error) {
	sessions := map[uint64]*session{}
	err := r.Each(tables.TableSession, func(id uint64, _, value []byte) error {
		record := &storepb.SessionRecord{}
		if err := proto.Unmarshal(value, record); err != nil {
			return fmt.Errorf("session %d of the core's store is malformed: %w", id, err)
		}
		if !slices.IsSorted(record.Kept) {
			return fmt.Errorf(
				"session %d of the core's store is malformed: its answers are not in order", id)
		}
		sessions[id] = &session{record}
		return nil
	})
	return sessions, err
}

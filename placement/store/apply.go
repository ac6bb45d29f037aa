package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/tidemarkdb/tidemark/placement/store/authority"
	"github.com/tidemarkdb/tidemark/placement/store/command"
	"github.com/tidemarkdb/tidemark/placement/store/execute"
	"github.com/tidemarkdb/tidemark/placement/store/lease"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/placement/store/tables"
	"github.com/tidemarkdb/tidemark/placement/store/watch"
	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/group"
)

// applied is what only Apply and Install touch: the group calls these one at a time.
type applied struct {
	index, term uint64
	sessions    map[uint64]*session
	// meta is the store's own record. It is replaced, and never changed.
	meta *storepb.MetaRecord
}

// application is one call of Apply: what it has done so far, none of it visible yet.
type application struct {
	store *Store
	batch *engine.StateBatch
	meta  *storepb.MetaRecord
	// metaChanged: meta is to be written when all commands are applied.
	metaChanged bool
	// reader reads the batch; reading: it is in use.
	reader  *tables.Reader
	reading bool
	// index is that of the entry at hand, and format that of its command.
	index  uint64
	format byte
	// change: its entry was proposed as a change of the configuration.
	change bool
	// authority is what the entries have made of users and roles; nil if they change nothing.
	authority *authority.State
	// alarms are what the entries have made of the alarms; nil if they change nothing.
	alarms *[]*storepb.Alarm
	// members are what the entries have made of the core's; nil if they change nothing.
	members *storepb.Members
	// unheard: no caller gets the answer of the command at hand, and it is not kept. So it need not
	// be made.
	unheard bool
	// watchesPrevious: a watch wants what keys were before.
	watchesPrevious bool
	events          []watch.Revision
	answers         []execute.Answer
	leases          []lease.Change
	// replaced: the history was replaced by an import, and is in the database alone. forgetLeases:
	// all leases went with it.
	replaced, forgetLeases bool
	// freed is how many bytes of versions and events were removed.
	freed uint64
	// attached is by how many keys leases have come to have more, or fewer.
	attached map[int64]int
}

// Applied implements group.StateMachine.
func (s *Store) Applied() (index, term uint64) { return s.machine.index, s.machine.term }

// Apply implements group.StateMachine. Everything that the entries do, and the applied index, is
// one batch.
func (s *Store) Apply(entries []group.Entry) (err error) {
	if len(entries) == 0 {
		return nil
	}
	s.beginFilling()
	batch := s.config.State.NewIndexedBatch()
	defer batch.Close()
	defer func() {
		if err != nil {
			s.blocks.Reset(s.Revision())
			s.newest.Reset()
		}
	}()
	a, err := s.newApplication(batch)
	if err != nil {
		return err
	}
	defer a.close()
	for _, e := range entries {
		if e.Index != a.index+1 {
			return fmt.Errorf("entry %d of the log of %s follows entry %d", e.Index, s.config.Name,
				a.index)
		}
		a.index = e.Index
		if len(e.Data) == 0 {
			continue
		}
		if err := command.Each(e.Data, func(data []byte) error {
			c, format, err := command.Decode(data)
			if err != nil {
				return err
			}
			a.format, a.change = format, e.Change
			return a.command(c)
		}); err != nil {
			return fmt.Errorf("entry %d of the log of %s: %w", e.Index, s.config.Name, err)
		}
	}
	if err := errors.Join(a.saveMeta(), a.close()); err != nil {
		return err
	}
	last := entries[len(entries)-1]
	if err := batch.Set(s.layout.Applied, tables.EncodeApplied(last.Index, last.Term),
		nil); err != nil {
		return err
	}
	if err := s.config.State.Commit(batch); err != nil {
		return fmt.Errorf("commit entries up to %d of the log of %s: %w", last.Index, s.config.Name,
			err)
	}
	s.machine.index, s.machine.term, s.machine.meta = last.Index, last.Term, a.meta
	if a.members != nil {
		s.members.replace(a.members)
	}
	if a.authority != nil {
		s.authority.replace(a.authority)
	}
	if a.alarms != nil {
		s.alarms.Store(a.alarms)
	}
	s.publish(a, last.Term)
	return nil
}

// publish makes an application visible: to the lessor, to readers, to watchers, and last to the
// callers that wait for it.
func (s *Store) publish(a *application, term uint64) {
	if a.forgetLeases {
		s.lessor.Replace(a.leases, a.attached)
	} else {
		s.lessor.Changed(a.leases, a.attached)
	}
	if a.replaced || a.forgetLeases {
		s.blocks.Reset(a.meta.Revision)
	}
	known := s.visible(a, term)
	if a.replaced {
		s.hub.Reset(a.meta.Revision)
	} else {
		s.hub.Publish(a.events, a.meta.Revision)
	}
	s.Settle(known)
	s.Wake()
}

// visible makes an application the newest. It returns the commands of which the outcome is known
// now.
func (s *Store) visible(a *application, term uint64) []execute.Known {
	s.revision.Store(a.meta.Revision)
	s.compacted.Store(a.meta.Compacted)
	if a.meta.CompactionRest != nil {
		s.Compactor.Left(a.meta) // its end is told by Compactor.Applied
	}
	imports := tables.Importing(a.meta)
	importChanged := s.importing.Swap(imports) != imports
	s.Advance(a.index)
	now := s.EntriesApplied(term, a.answers)
	switch {
	case now.Changed, importChanged:
		s.Serve(now.Serving && !imports)
	case len(a.leases) > 0:
		s.Keeper.Look()
	}
	if now.Changed {
		s.Compactor.Look()
	}
	s.Gate.Applied(a.meta.Bytes, now.Reserved, a.freed)
	s.Compactor.Applied(a.meta)
	return now.Known
}

// LeadershipChanged implements group.StateMachine.
func (s *Store) LeadershipChanged(l group.Leadership) {
	serving := s.SetLeadership(l)
	s.Serve(serving && !s.importing.Load())
	s.Compactor.Look()
}

// newApplication begins to apply entries, which write to the batch. The caller closes it.
func (s *Store) newApplication(batch *engine.StateBatch) (*application, error) {
	a := &application{store: s, batch: batch, index: s.machine.index, attached: map[int64]int{},
		watchesPrevious: s.hub.WantsPrevious()}
	a.meta = tables.CopyMeta(s.machine.meta)
	var err error
	if a.reader, err = tables.NewReaderWith(s.layout, batch, a.meta); err != nil {
		return nil, err
	}
	a.reader.Newest, a.reader.Vacant = s.newest, s.blocks
	return a, nil
}

func (a *application) close() error {
	if a.reader == nil {
		return nil
	}
	err := a.reader.Close()
	a.reader = nil
	return err
}

// command applies one command.
func (a *application) command(c *storepb.Command) error {
	id := execute.ID{Origin: c.Origin, Request: c.Request}
	heard := a.store.Awaits(id)
	a.unheard = !heard && c.Session == 0
	result, err := a.once(c)
	if _, is := c.Op.(*storepb.Command_ChangeMembers); a.change && !is {
		err = errors.Join(err, errors.New("it changes the configuration, and says no members"))
	}
	if err != nil {
		return err
	}
	a.store.metrics.applied(c, result)
	if heard {
		a.answers = append(a.answers, execute.Answer{ID: id, Result: result})
	}
	return nil
}

// read runs f on the state as the commands so far have made it. The reader is the same each time,
// for it costs more to make one than to read a key; only a read within a read has one of its own.
func (a *application) read(f func(*tables.Reader) error) error {
	if a.reading {
		r, err := tables.NewReader(a.store.layout, a.batch)
		if err != nil {
			return err
		}
		r.Meta = a.meta
		return errors.Join(f(r), r.Close())
	}
	a.reading = true
	defer func() { a.reading = false }()
	a.reader.Meta = a.meta
	a.reader.Refresh()
	return f(a.reader)
}

// execute evaluates a command. An error means that the database failed; whatever the command itself
// does wrong is in the result.
func (a *application) execute(c *storepb.Command) (*storepb.Result, error) {
	result := &storepb.Result{}
	if tables.Importing(a.meta) && refusesDuringImport(c) {
		command.Refuse(result, storepb.Code_IMPORTING, "it has %d keys so far", a.meta.Import.Versions)
		result.Revision = a.meta.Revision
		return result, nil
	}
	if code := command.Alarmed(a.currentAlarms(), c); code != storepb.Code_OK {
		command.Refuse(result, code, "")
		result.Revision = a.meta.Revision
		return result, nil
	}
	err := a.authorize(c, result)
	if err != nil || result.Code != storepb.Code_OK {
		result.Revision = a.meta.Revision
		return result, err
	}
	switch op := c.Op.(type) {
	case *storepb.Command_Txn:
		err = a.txn(op.Txn, result)
	case *storepb.Command_Compact:
		err = a.compact(op.Compact, result)
	case *storepb.Command_LeaseGrant:
		err = a.grant(op.LeaseGrant, result)
	case *storepb.Command_LeaseRevoke:
		err = a.revoke(op.LeaseRevoke, result)
	case *storepb.Command_LeaseCheckpoint:
		err = a.checkpoint(op.LeaseCheckpoint)
	case *storepb.Command_SessionOpen:
		err = a.openSession(result)
	case *storepb.Command_SessionClose:
		err = a.closeSession(c.Session)
	case *storepb.Command_AuthChange:
		err = a.changeAuth(op.AuthChange, result)
	case *storepb.Command_ChangeMembers:
		err = a.changeMembers(op.ChangeMembers, result)
	case *storepb.Command_Import:
		err = a.importStep(op.Import, result)
	case *storepb.Command_AlarmChange:
		err = a.changeAlarm(op.AlarmChange, result)
	default:
		err = fmt.Errorf("command %T is not known to this version", op)
	}
	result.Revision = a.meta.Revision
	return result, err
}

// saveMeta writes the store's own record, if a command has changed it.
func (a *application) saveMeta() error {
	if !a.metaChanged {
		return nil
	}
	value, err := a.meta.MarshalVT()
	if err != nil {
		return err
	}
	return a.batch.Set(a.store.layout.Meta, value, nil)
}

// message is what the engine needs of a record.
type message interface{ MarshalVT() ([]byte, error) }

func (a *application) set(key []byte, record message) error {
	value, err := record.MarshalVT()
	if err != nil {
		return err
	}
	return a.batch.Set(key, value, nil)
}

// added notes the bytes of a pair that is new.
func (a *application) added(key, value []byte) { a.meta.Bytes += uint64(len(key) + len(value)) }

// removed notes the bytes of a pair that goes.
func (a *application) removed(bytes uint64) {
	bytes = min(bytes, a.meta.Bytes)
	a.meta.Bytes -= bytes
	a.freed += bytes
}

// setPair writes a version or an event, which was not there.
func (a *application) setPair(key, value []byte) error {
	a.added(key, value)
	return a.batch.Set(key, value, nil)
}

// setVersion writes a version.
func (a *application) setVersion(key []byte, record *storepb.VersionRecord) error {
	value, err := record.MarshalVT()
	if err != nil {
		return err
	}
	return a.setPair(key, value)
}

// machine is the store as its commands need it. It implements execute.Machine.
type machine struct{ *Store }

// Prepare implements execute.Machine.
func (m machine) Prepare(ctx context.Context, c *storepb.Command) (*storepb.Command, error) {
	err := m.Check(ctx, c)
	if compact := c.GetCompact(); compact != nil && err == nil {
		return m.Compactor.Prepare(ctx, c, compact)
	}
	return c, err
}

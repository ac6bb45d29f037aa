package apply

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/placement/store/authority"
	"github.com/tidemarkdb/tidemark/placement/store/command"
	"github.com/tidemarkdb/tidemark/placement/store/execute"
	"github.com/tidemarkdb/tidemark/placement/store/keycount"
	"github.com/tidemarkdb/tidemark/placement/store/lease"
	"github.com/tidemarkdb/tidemark/placement/store/newest"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/placement/store/tables"
	"github.com/tidemarkdb/tidemark/placement/store/watch"
	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/invariants"
)

// Store has the values of the newest state that are not read from the database, and knows which
// callers wait.
type Store interface {
	Authority() *authority.State
	Alarms() []*storepb.Alarm
	Members() *storepb.Members
	// Awaits reports whether a caller waits for the result of a command.
	Awaits(execute.ID) bool
	// Evaluated is told what a command came to.
	Evaluated(*storepb.Command, *storepb.Result)
}

// Machine is the state of evaluation in memory. It is for one goroutine at a time.
type Machine struct {
	store       Store
	layout      *tables.Layout
	blocks      *keycount.Blocks
	newest      *newest.Cache
	index, term uint64
	sessions    map[uint64]*session
	// meta is the store's own record. It is replaced, and never changed.
	meta *storepb.MetaRecord
}

// New returns a Machine without a state. The caller's blocks and newest are updated before the
// batch is committed: no reader is ahead of them. If an application is given up, the caller resets
// both.
func New(
	store Store, layout *tables.Layout, blocks *keycount.Blocks, newest *newest.Cache,
) *Machine {
	return &Machine{store: store, layout: layout, blocks: blocks, newest: newest}
}

// Load reads what memory has of a state.
func (m *Machine) Load(r *tables.Reader) (err error) {
	if m.index, m.term, err = r.Applied(); err != nil {
		return err
	}
	m.sessions, err = loadSessions(r)
	m.meta = r.Meta
	return err
}

// Applied is the index and the term of the last entry that was applied.
func (m *Machine) Applied() (index, term uint64) { return m.index, m.term }

// Effects are the changes of an application beside the database. Members, Authority and Alarms are
// nil if they do not change.
type Effects struct {
	Index     uint64
	Meta      *storepb.MetaRecord
	Members   *storepb.Members
	Authority *authority.State
	Alarms    *[]*storepb.Alarm
	Events    []watch.Revision
	// Answers are the results of commands for which a caller waits.
	Answers []execute.Answer
	Leases  []lease.Change
	// Attached is by how many keys leases have come to have more, or fewer.
	Attached map[int64]int
	// Replaced is set if an import has replaced the history, which is in the database only.
	// ForgetLeases is set if all leases went with it.
	Replaced, ForgetLeases bool
	// Freed is how many bytes of versions and events were removed.
	Freed uint64
}

// Application is the application of some entries: their changes so far, none of them visible yet.
type Application struct {
	Effects
	machine *Machine
	batch   *engine.StateBatch
	// metaChanged is set if Meta has to be written when all commands are applied.
	metaChanged bool
	// reader reads the batch; reading is set while it is in use.
	reader  *tables.Reader
	reading bool
	// format is that of the command at hand.
	format byte
	// change is set if the entry was proposed as a change of the configuration.
	change bool
	// unheard is set if no caller gets the answer of the present command, and it is not kept. So it
	// need not be made.
	unheard bool
	// watchesPrevious is set if a watch wants the former values of keys.
	watchesPrevious bool
}

// Begin begins to apply entries, which write to the batch. The caller closes the Application, and
// commits the batch after Finish.
func (m *Machine) Begin(batch *engine.StateBatch, watchesPrevious bool) (*Application, error) {
	a := &Application{machine: m, batch: batch, watchesPrevious: watchesPrevious,
		Effects: Effects{Index: m.index, Attached: map[int64]int{}, Meta: tables.CopyMeta(m.meta)}}
	var err error
	if a.reader, err = tables.NewReaderWith(m.layout, batch, a.Meta); err != nil {
		return nil, err
	}
	a.reader.Newest, a.reader.Vacant = m.newest, m.blocks
	return a, nil
}

// Entry applies the next entry of the log.
func (a *Application) Entry(e group.Entry) error {
	if e.Index != a.Index+1 {
		return fmt.Errorf("it follows entry %d", a.Index)
	}
	a.Index = e.Index
	if len(e.Data) == 0 {
		return nil
	}
	return command.Each(e.Data, func(data []byte) error {
		c, format, err := command.Decode(data)
		if err != nil {
			return err
		}
		a.format, a.change = format, e.Change
		return a.command(c)
	})
}

// Finish writes to the batch that the log is applied up to Index, at that term. Nothing more can be
// applied.
func (a *Application) Finish(term uint64) error {
	if invariants.Enabled && a.Meta.Bytes <= 256<<10 && finished.Due(64) {
		if err := a.checkInvariantBytes(); err != nil {
			return err
		}
	}
	applied := tables.EncodeApplied(a.Index, term)
	return errors.Join(a.saveMeta(), a.Close(), a.batch.Set(a.machine.layout.Applied, applied, nil))
}

// finished counts applications, for checkInvariantBytes.
var finished invariants.Every

// checkInvariantBytes checks the size of the store against all versions and events.
func (a *Application) checkInvariantBytes() error {
	return a.read(func(r *tables.Reader) error {
		sum, err := r.SumBytes()
		invariants.Check(err != nil || sum == a.Meta.Bytes,
			"the store: versions and events have %d bytes, and %d are counted", sum, a.Meta.Bytes)
		return err
	})
}

// Committed makes a finished application, whose batch is committed, the newest.
func (m *Machine) Committed(a *Application, term uint64) {
	m.index, m.term, m.meta = a.Index, term, a.Meta
}

func (a *Application) Close() error {
	if a.reader == nil {
		return nil
	}
	err := a.reader.Close()
	a.reader = nil
	return err
}

// command applies one command.
func (a *Application) command(c *storepb.Command) error {
	id := execute.ID{Origin: c.Origin, Request: c.Request}
	heard := a.machine.store.Awaits(id)
	a.unheard = !heard && c.Session == 0
	before := a.Meta.Revision
	result, err := a.once(c)
	if invariants.Enabled && err == nil && c.GetImport() == nil && !a.Replaced {
		invariants.Check(a.Meta.Revision == before || a.Meta.Revision == before+1,
			"the store: a command takes revision %d to %d", before, a.Meta.Revision)
		invariants.Check(a.Meta.Compacted <= a.Meta.Revision,
			"the store: revision %d is compacted, and the newest is %d", a.Meta.Compacted,
			a.Meta.Revision)
	}
	if _, is := c.Op.(*storepb.Command_ChangeMembers); a.change && !is {
		err = errors.Join(err, errors.New("it changes the configuration, and says no members"))
	}
	if err != nil {
		return err
	}
	a.machine.store.Evaluated(c, result)
	if heard {
		a.Answers = append(a.Answers, execute.Answer{ID: id, Result: result})
	}
	return nil
}

// read runs f on the state as the commands so far have made it. The reader is the same each time,
// for it costs more to make one than to read a key; only a read within a read has one of its own.
func (a *Application) read(f func(*tables.Reader) error) error {
	if a.reading {
		r, err := tables.NewReader(a.machine.layout, a.batch)
		if err != nil {
			return err
		}
		r.Meta = a.Meta
		return errors.Join(f(r), r.Close())
	}
	a.reading = true
	defer func() { a.reading = false }()
	a.reader.Meta = a.Meta
	a.reader.Refresh()
	return f(a.reader)
}

// execute evaluates a command. An error means that the database failed; whatever the command itself
// does wrong is in the result.
func (a *Application) execute(c *storepb.Command) (*storepb.Result, error) {
	result := &storepb.Result{}
	if tables.Importing(a.Meta) && refusesDuringImport(c) {
		command.Refuse(result, storepb.Code_IMPORTING, "it has %d keys so far", a.Meta.Import.Versions)
		result.Revision = a.Meta.Revision
		return result, nil
	}
	if code := command.Alarmed(a.currentAlarms(), c); code != storepb.Code_OK {
		command.Refuse(result, code, "")
		result.Revision = a.Meta.Revision
		return result, nil
	}
	err := a.authorize(c, result)
	if err != nil || result.Code != storepb.Code_OK {
		result.Revision = a.Meta.Revision
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
	result.Revision = a.Meta.Revision
	return result, err
}

// saveMeta writes the store's own record, if a command has changed it.
func (a *Application) saveMeta() error {
	if !a.metaChanged {
		return nil
	}
	value, err := proto.Marshal(a.Meta)
	if err != nil {
		return err
	}
	return a.batch.Set(a.machine.layout.Meta, value, nil)
}

func (a *Application) set(key []byte, record proto.Message) error {
	value, err := proto.Marshal(record)
	if err != nil {
		return err
	}
	return a.batch.Set(key, value, nil)
}

// added notes the bytes of a pair that is new.
func (a *Application) added(key, value []byte) { a.Meta.Bytes += uint64(len(key) + len(value)) }

// removed notes the bytes of a pair that goes.
func (a *Application) removed(bytes uint64) {
	bytes = min(bytes, a.Meta.Bytes)
	a.Meta.Bytes -= bytes
	a.Freed += bytes
}

// setPair writes a version or an event, which was not there.
func (a *Application) setPair(key, value []byte) error {
	a.added(key, value)
	return a.batch.Set(key, value, nil)
}

// setVersion writes a version.
func (a *Application) setVersion(key []byte, record *storepb.VersionRecord) error {
	value, err := proto.Marshal(record)
	if err != nil {
		return err
	}
	return a.setPair(key, value)
}

package apply

import (
	"errors"

	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/placement/store/authority"
	"github.com/tidemarkdb/tidemark/placement/store/execute"
	"github.com/tidemarkdb/tidemark/placement/store/keycount"
	"github.com/tidemarkdb/tidemark/placement/store/lease"
	"github.com/tidemarkdb/tidemark/placement/store/newest"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/placement/store/tables"
	"github.com/tidemarkdb/tidemark/placement/store/watch"
	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/invariants"
)

// Store has the values of the newest state outside the database, and knows the waiting callers.
type Store interface {
	Authority() *authority.State
	Alarms() []*storepb.Alarm
	Members() *storepb.Members
	// Awaits reports whether a caller waits for the result of a command.
	Awaits(execute.ID) bool
	// Evaluated is called with each command and its result.
	Evaluated(*storepb.Command, *storepb.Result)
}

// Machine is the in-memory state of evaluation. One goroutine at a time uses it.
type Machine struct {
	store       Store
	layout      *tables.Layout
	blocks      *keycount.Blocks
	newest      *newest.Cache
	index, term uint64
	sessions    map[uint64]*session
	// meta is the store's meta record. The message is never changed, only replaced.
	meta *storepb.MetaRecord
}

// New returns a Machine without a state. blocks and newest, which the caller provides, are updated
// before the batch is committed, so that no reader is ahead of them. If an application is given up,
// the caller resets both.
func New(
	store Store, layout *tables.Layout, blocks *keycount.Blocks, newest *newest.Cache,
) *Machine {
	return &Machine{store: store, layout: layout, blocks: blocks, newest: newest}
}

// Load loads the in-memory state.
func (m *Machine) Load(r *tables.Reader) (err error) {
	if m.index, m.term, err = r.Applied(); err != nil {
		return err
	}
	m.sessions, err = loadSessions(r)
	m.meta = r.Meta
	return err
}

// Applied is the index and the term of the last applied entry.
func (m *Machine) Applied() (index, term uint64) { return m.index, m.term }

// Effects are the changes of an application outside the database. Members, Authority and Alarms are
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
	// Attached is the change in the number of keys of each lease.
	Attached map[int64]int
	// Replaced is set if an import has replaced the history; the new history is only in the
	// database. ForgetLeases is set if the import has removed all leases.
	Replaced, ForgetLeases bool
	// Freed is the number of bytes of removed versions and events.
	Freed uint64
}

// Application applies some entries. Its changes are not visible yet.
type Application struct {
	Effects
	machine *Machine
	batch   *engine.StateBatch
	// metaChanged is set if Meta has to be written when all commands are applied.
	metaChanged bool
	// reader reads the batch; reading is set while reader is in use.
	reader  *tables.Reader
	reading bool
	// format is the format of the present command.
	format byte
	// change is set if the entry was proposed as a change of the configuration.
	change bool
	// unheard is set if no caller waits for the result of the present command, and no session keeps
	// it. Then the result need not be made.
	unheard bool
	// watchesPrevious is set if a watch wants previous values.
	watchesPrevious bool
}

// Begin begins an application of entries that write to the batch. The caller closes the
// Application, and commits the batch after Finish.
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

// Finish writes the applied index and term to the batch. No entry may follow.
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

// checkInvariantBytes compares the recorded size of the store with all versions and events.
func (a *Application) checkInvariantBytes() error {
	return a.read(func(r *tables.Reader) error {
		sum, err := r.SumBytes()
		invariants.Check(err != nil || sum == a.Meta.Bytes,
			"the store: versions and events have %d bytes, and %d are counted", sum, a.Meta.Bytes)
		return err
	})
}

// Committed makes a finished application, whose batch is committed, the Machine's state.
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

// read runs f on the state after the commands so far. It reuses one reader, since a new reader
// costs more than reading a key; only a nested read opens its own.
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

// saveMeta writes the meta record, if a command has changed it.
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

// added adds the bytes of a new pair to the store's size.
func (a *Application) added(key, value []byte) { a.Meta.Bytes += uint64(len(key) + len(value)) }

// removed subtracts the bytes of removed pairs from the store's size.
func (a *Application) removed(bytes uint64) {
	bytes = min(bytes, a.Meta.Bytes)
	a.Meta.Bytes -= bytes
	a.Freed += bytes
}

// setPair writes a version or an event that does not exist yet.
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

package apply

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tidemarkdb/tidemark/placement/store/authority"
	"github.com/tidemarkdb/tidemark/placement/store/command"
	"github.com/tidemarkdb/tidemark/placement/store/execute"
	"github.com/tidemarkdb/tidemark/placement/store/keycount"
	"github.com/tidemarkdb/tidemark/placement/store/newest"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/placement/store/tables"
	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// fixed is a Store without users, alarms and members, of whose commands all callers wait.
type fixed struct{}

func (fixed) Authority() *authority.State                     { return nil }
func (fixed) Alarms() []*storepb.Alarm                        { return nil }
func (fixed) Members() *storepb.Members                       { return nil }
func (fixed) Awaits(execute.ID) bool                          { return true }
func (fixed) Evaluated(c *storepb.Command, r *storepb.Result) {}

// member is a Machine on a database of its own.
type member struct {
	*Machine
	t     *testing.T
	state *engine.State
}

func newMember(t *testing.T) *member {
	state, err := engine.OpenState(engine.Options{FS: vfs.NewMem(), Dir: "state",
		CacheBytes: 1 << 20, MemTableBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = state.Close() })
	m := &member{t: t, state: state}
	m.load()
	return m
}

// load is what the start of a process does.
func (m *member) load() {
	layout := tables.NewLayout(keys.CorePartition)
	m.Machine = New(fixed{}, layout, keycount.New(nil), newest.New(newest.LimitsFor(1<<20)))
	r, err := tables.NewReader(layout, m.state)
	if err != nil {
		m.t.Fatal(err)
	}
	defer r.Close()
	if err := m.Load(r); err != nil {
		m.t.Fatal(err)
	}
}

// do applies one entry.
func (m *member) do(c *storepb.Command) (*storepb.Result, *Effects) {
	m.t.Helper()
	data, err := command.Encode(c)
	if err != nil {
		m.t.Fatal(err)
	}
	batch := m.state.NewIndexedBatch()
	defer batch.Close()
	a, err := m.Begin(batch, false)
	if err != nil {
		m.t.Fatal(err)
	}
	defer a.Close()
	index, _ := m.Applied()
	if err := a.Entry(group.Entry{Index: index + 1, Term: 1, Data: data}); err != nil {
		m.t.Fatal(err)
	}
	if err := a.Finish(1); err != nil {
		m.t.Fatal(err)
	}
	if err := m.state.Commit(batch); err != nil {
		m.t.Fatal(err)
	}
	m.Committed(a, 1)
	return a.Answers[0].Result, &a.Effects
}

func put(key, value string) *storepb.Command {
	return &storepb.Command{Op: &storepb.Command_Txn{Txn: &storepb.Txn{Success: []*storepb.Op{
		{Op: &storepb.Op_Put{Put: &storepb.Put{Key: []byte(key), Value: []byte(value),
			Previous: true}}}}}}}
}

// What a Machine knows it has from the state: one that is loaded anew goes on as one that is not,
// and answers a command that a session has had before.
func TestLoadedMachineGoesOn(t *testing.T) {
	one, other := newMember(t), newMember(t)
	var last *storepb.Command
	for i, c := range []*storepb.Command{
		{Op: &storepb.Command_SessionOpen{SessionOpen: &storepb.SessionOpen{}}},
		put("a", "1"), put("b", "2"), put("a", "3"),
		{Op: &storepb.Command_LeaseGrant{LeaseGrant: &storepb.LeaseGrant{Id: 5, TtlMillis: 1000}}},
		{Op: &storepb.Command_Compact{Compact: &storepb.Compact{Revision: 3}}},
		put("b", "4"),
	} {
		if c.GetTxn() != nil {
			c.Session, c.Sequence = 1, uint64(i)
			last = c
		}
		want, effects := one.do(c)
		other.load()
		got, _ := other.do(c)
		if want.String() != got.String() || want.Code != storepb.Code_OK {
			t.Errorf("command %d came to %v, and to %v", i, want, got)
		}
		if effects.Meta.Revision != want.Revision {
			t.Errorf("command %d: revision %d, the result has %d", i, effects.Meta.Revision,
				want.Revision)
		}
	}
	other.load()
	if again, effects := other.do(last); !again.Repeated || len(effects.Events) > 0 {
		t.Errorf("done again it came to %v, with %d events", again, len(effects.Events))
	}
}

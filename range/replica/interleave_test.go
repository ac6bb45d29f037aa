package replica

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/mvcc"
	"github.com/tidemarkdb/tidemark/range/replica/config"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// interleaving is a serving leader, to be stopped in the middle of things.
type interleaving struct {
	t       *testing.T
	s       scenario
	leader  *member
	session *kvpb.Timestamp
}

func newInterleaving(t *testing.T) *interleaving {
	i := &interleaving{t: t, s: scenario{t: t}}
	i.s.c = newTestCluster(t, 1, config.Limits{MaxInFlight: 3})
	i.leader = i.s.c.members[0]
	i.s.c.elect(i.leader)
	i.leader.catchUp(-1)
	i.s.c.physical.Advance(time.Second)
	i.session = &kvpb.Timestamp{Wall: uint64(i.s.c.physical.Now())}
	t.Cleanup(i.s.c.close)
	return i
}

// submit sends requests in one call, and returns what is answered at once.
func (i *interleaving) submit(lines ...string) []*kvpb.Response {
	var pending []config.Pending
	for _, line := range lines {
		pending = append(pending, i.s.parseRequest(line))
	}
	i.s.c.physical.Advance(time.Millisecond)
	i.leader.replica.Submit(pending)
	i.s.c.settle()
	return i.s.answers.take()
}

func (i *interleaving) step() []*kvpb.Response {
	i.leader.commit(-1)
	i.leader.catchUp(-1)
	i.s.c.settle()
	return i.s.answers.take()
}

// A version that is in the engine, and whose write is not answered, is seen by no read: otherwise a
// later one might not see it, and time would go back.
func TestReadBetweenCommitAndCompletion(t *testing.T) {
	i := newInterleaving(t)
	i.submit("put k v1")
	i.step()
	i.submit("put k v2")
	var between []*kvpb.Response
	i.leader.node.Hooks.Committed = func() {
		i.leader.node.Hooks.Committed = nil
		between = i.submit("get k", "scan a z")
	}
	after := i.step()
	if len(between) != 1 || string(between[0].GetGet().GetValue()) != "v1" {
		t.Fatalf("read in between: %v", between)
	}
	// The scan waited for the completion.
	if len(after) != 2 || after[0].GetPut() == nil ||
		string(rowsOf(after[1].GetScan().GetRows())[0].Value) != "v2" {
		t.Fatalf("afterwards: %v", after)
	}
}

// A retry whose first attempt is applied while the evaluation is at work is recognised, although
// the evaluation began to read the engine before that; also if another write of the key is still in
// flight.
func TestRetryWhileFirstAttemptIsApplied(t *testing.T) {
	for _, onTop := range []bool{false, true} {
		i := newInterleaving(t)
		i.submit("put other v seq=70 session=1000")
		i.submit("put k v1 seq=71 session=1000")
		if onTop {
			i.submit("put k v2 seq=72 session=1000")
		} else {
			i.submit("put third v seq=72 session=1000")
		}
		// All places for entries are taken, so these two wait, and are evaluated together when the
		// first entry is applied.
		i.submit("put fresh v seq=73 session=1000", "put k v1 seq=71 session=1000")
		evaluated := 0
		i.leader.node.Hooks.Evaluate = func() {
			if evaluated++; evaluated == 2 {
				i.leader.commit(1)
				i.leader.catchUp(-1)
			}
		}
		i.leader.commit(1)
		i.leader.catchUp(-1)
		i.leader.node.Hooks.Evaluate = nil
		if evaluated != 2 {
			t.Fatalf("%d writes were evaluated together", evaluated)
		}
		i.step()
		i.step()
		checkAppliedOnce(t, i.leader.replica)
		if versions := i.leader.replica.Stats().Versions; versions != 4 {
			t.Fatalf("%d versions, want 4", versions)
		}
	}
}

// A retry that is evaluated while the lock goes that its first attempt waits for is answered that
// nothing was swapped, and so it stays: even if the epoch ends at that moment, in which the queue
// outlives it.
func TestRetryWhileFirstAttemptIsReleased(t *testing.T) {
	for _, epochEnds := range []bool{false, true} {
		i := newInterleaving(t)
		i.s.transactions = map[string]*kvpb.Transaction{
			"T1": {Id: transactionID("T1"), Keyspace: 7, Anchor: []byte("k"), Begun: parseStamp("10"),
				Started: parseStamp("10")}}
		i.submit("prepare T1 k=held seq=201")
		i.step()
		i.submit("put k free client=8 seq=1")
		i.submit("cas k value=free mine client=7 seq=71 session=1000")
		i.submit("resolve T1 commit=1004")
		i.submit("put another v client=8 seq=2")
		evaluated := 0
		i.leader.node.Hooks.Evaluate = func() {
			if evaluated++; evaluated != 2 {
				return
			}
			i.leader.commit(1)
			i.leader.catchUp(-1)
			if epochEnds {
				i.leader.replica.eval.CheckStall(time.Now().Add(24 * time.Hour))
			}
		}
		retried := i.submit("put third v client=8 seq=3",
			"cas k value=free mine client=7 seq=71 session=1000")
		retry := i.s.id
		i.leader.node.Hooks.Evaluate = nil
		all := append(retried, i.step()...)
		all = append(append(all, i.step()...), i.step()...)
		answered := false
		for _, response := range all {
			if response.Id != retry {
				continue
			}
			answered = true
			if epochEnds {
				if code := response.GetError().GetCode(); code != kvpb.ErrorCode_NOT_LEADER {
					t.Fatalf("the retry, when the epoch has ended: %s", describe(response))
				}
				continue
			}
			if c := response.GetCompareAndSwap(); c == nil || c.Swapped || string(c.Current) != "held" {
				t.Fatalf("the retry: %s", describe(response))
			}
		}
		if !answered {
			t.Fatal("the retry was not answered")
		}
		got := i.submit("get k")
		if len(got) != 1 || string(got[0].GetGet().GetValue()) != "free" {
			t.Fatalf("epoch ends %t: afterwards %v", epochEnds, got)
		}
		if n := i.leader.replica.m.Mu.Locks.Writes.Attempts.Len(); n != 0 {
			t.Fatalf("%d attempts are still known", n)
		}
	}
}

// A retry whose epoch ends before it is evaluated does not see what is in flight, its first attempt
// and what that builds on, though both are applied yet. It is not told that nothing was done.
func TestRetryWhileTheEpochEnds(t *testing.T) {
	for _, how := range []string{"stall", "leadership lost"} {
		for _, request := range []string{"cas k value=v1 mine", "delete k"} {
			i := newInterleaving(t)
			request += " client=7 seq=71 session=1000"
			after := ""
			if strings.HasPrefix(request, "cas") {
				after = "mine"
				i.submit("put k v0 client=8 seq=1")
				i.step()
			}
			i.submit("put k v1 client=8 seq=2", request)
			evaluated := 0
			i.leader.node.Hooks.Evaluate = func() {
				if evaluated++; evaluated == 2 {
					i.endEpoch(how)
				}
			}
			all := i.submit("put other v client=8 seq=3", request)
			retry := i.s.id
			i.leader.node.Hooks.Evaluate = nil
			all = append(append(all, i.step()...), i.step()...)
			answers := 0
			for _, response := range all {
				if response.Id != retry {
					continue
				}
				answers++
				if code := response.GetError().GetCode(); code != kvpb.ErrorCode_NOT_LEADER {
					t.Errorf("%s, %s: the retry was told %s", how, request, describe(response))
				}
			}
			if got := i.applied("k"); answers != 1 || got != after {
				t.Errorf("%s, %s: %d answers, and k is %q", how, request, answers, got)
			}
		}
	}
}

// endEpoch ends the leadership epoch in one of two ways.
func (i *interleaving) endEpoch(how string) {
	r := i.leader.replica
	if how == "stall" {
		r.eval.CheckStall(time.Now().Add(24 * time.Hour))
		return
	}
	l := r.m.Mu.Leadership.Leadership
	l.IsLeader, l.Term = false, l.Term+1
	r.LeadershipChanged(l)
}

// A retry of a one-phase commit whose first attempt is applied between the look for it and the look
// at what the commit has read takes that for another request's, if the epoch has ended before. It
// is not told so.
func TestRetryIsAppliedWhileTheEpochEnds(t *testing.T) {
	i := newInterleaving(t)
	i.s.transactions = map[string]*kvpb.Transaction{
		"T2": {Id: transactionID("T2"), Keyspace: 7, Anchor: []byte("k"), Begun: parseStamp("10"),
			Started: parseStamp("10")}}
	i.submit("put k before client=8 seq=1")
	i.step()
	const commit = "prepare T2 k=mine one-phase keys=k read-at=1003 client=7 seq=71 session=1000"
	i.submit(commit)
	evaluated, read := 0, 0
	i.leader.node.Hooks.Evaluate = func() {
		if evaluated++; evaluated == 2 {
			i.endEpoch("stall")
			i.leader.node.Hooks.Read = func() {
				if read++; read == 2 {
					i.leader.commit(1)
					i.leader.catchUp(-1)
				}
			}
		}
	}
	all := i.submit("put other v client=8 seq=3", commit)
	retry := i.s.id
	i.leader.node.Hooks.Evaluate, i.leader.node.Hooks.Read = nil, nil
	all = append(append(all, i.step()...), i.step()...)
	answers := 0
	for _, response := range all {
		if response.Id == retry {
			answers++
			if code := response.GetError().GetCode(); code != kvpb.ErrorCode_NOT_LEADER {
				t.Errorf("the retry was told %s", describe(response))
			}
		}
	}
	if got := i.applied("k"); read < 2 || answers != 1 || got != "mine" {
		t.Errorf("%d look-ups, %d answers, and k is %q", read, answers, got)
	}
}

// The epoch ends, and volatile locks with it, while a one-phase commit that has one compares what
// it has read: it is refused, and that is all.
func TestCommitOfAVolatileLockWhileTheEpochEnds(t *testing.T) {
	for _, how := range []string{"stall", "leadership lost"} {
		i := newInterleaving(t)
		i.s.transactions = map[string]*kvpb.Transaction{
			"T1": {Id: transactionID("T1"), Keyspace: 7, Anchor: []byte("k"), Begun: parseStamp("10"),
				Started: parseStamp("10")}}
		i.submit("put k v0 client=8 seq=1")
		i.step()
		if got := i.submit("prepare T1 k=lock values volatile client=7 seq=201"); len(got) != 1 ||
			got[0].GetPrepare() == nil {
			t.Fatalf("the lock: %v", got)
		}
		i.submit("put other v client=8 seq=2") // what stalls
		read := 0
		i.leader.node.Hooks.Read = func() {
			if read++; read == 2 { // after the look for an earlier attempt
				i.endEpoch(how)
			}
		}
		all := i.submit("prepare T1 k=v1 one-phase read-at=1003 client=7 seq=202 keys=r")
		i.leader.node.Hooks.Read = nil
		all = append(append(all, i.step()...), i.step()...)
		commit := slices.DeleteFunc(all, func(r *kvpb.Response) bool { return r.Id != i.s.id })
		if len(commit) != 1 || commit[0].GetError().GetCode() != kvpb.ErrorCode_NOT_LEADER || read < 2 {
			t.Errorf("%s: %d look-ups, and the commit was told %v", how, read, commit)
		}
		if got := i.applied("k"); got != "v0" {
			t.Errorf("%s: k is %q", how, got)
		}
	}
}

// applied is the value of a key in the leader's engine.
func (i *interleaving) applied(key string) string {
	r := i.leader.replica
	r.m.Mu.Lock()
	pending := r.m.Mu.Pending.Newest(key) != nil
	r.m.Mu.Unlock()
	getter, err := mvcc.NewGetter(r.state)
	if err != nil {
		i.t.Fatal(err)
	}
	defer getter.Close()
	v, found, err := getter.Newest(keys.InternalKey(r.Descriptor(), []byte(key)))
	if err != nil {
		i.t.Fatal(err)
	}
	if pending || !found || v.Kind != mvcc.KindValue {
		return ""
	}
	return string(v.Value)
}

// A one-phase commit that is told of a conflict with what is in flight never takes effect, even if
// that is lost: its first attempt, whose lock goes while the retry is evaluated, comes to nothing.
func TestRetryConflictsWhileFirstAttemptIsReleased(t *testing.T) {
	i := newInterleaving(t)
	i.s.transactions = make(map[string]*kvpb.Transaction)
	for _, name := range []string{"T1", "T2"} {
		i.s.transactions[name] = &kvpb.Transaction{Id: transactionID(name), Keyspace: 7,
			Anchor: []byte("k"), Begun: parseStamp("10"), Started: parseStamp("10")}
	}
	i.submit("put k before client=8 seq=1")
	i.step()
	i.submit("prepare T1 k=held seq=201")
	i.step()
	const commit = "prepare T2 k=mine one-phase keys=k read-at=1003 client=7 seq=71 session=1000"
	i.submit(commit)
	i.submit("resolve T1 abort")
	i.submit("put another v client=8 seq=2")
	evaluated := 0
	i.leader.node.Hooks.Evaluate = func() {
		switch evaluated++; evaluated {
		case 2: // the lock goes
			i.leader.commit(1)
			i.leader.catchUp(-1)
		case 4: // the retry has been evaluated, and what it has met is not proposed
			i.leader.replica.eval.CheckStall(time.Now().Add(24 * time.Hour))
		}
	}
	all := i.submit("put third v client=8 seq=3", "put k theirs client=8 seq=4", commit,
		"put fourth v client=8 seq=5")
	retry := i.s.id - 1
	i.leader.node.Hooks.Evaluate = nil
	if evaluated != 4 {
		t.Fatalf("%d writes were evaluated together, want 4", evaluated)
	}
	for range 3 {
		all = append(all, i.step()...)
	}
	told := false
	for _, response := range all {
		if response.Id == retry {
			told = response.GetError().GetCode() == kvpb.ErrorCode_TRANSACTION_CONFLICT
		}
	}
	if !told {
		t.Fatalf("the retry was not told of a conflict: %v", all)
	}
	got := i.submit("get k")
	if len(got) != 1 || string(got[0].GetGet().GetValue()) != "before" {
		t.Fatalf("afterwards %v", got)
	}
	if n := i.leader.replica.m.Mu.Locks.Writes.Attempts.Len(); n != 0 {
		t.Fatalf("%d attempts are still known", n)
	}
}

// A lease that was held before a write came proves nothing for it: another leader may have written
// since. So what the write has found is told when its entry is applied.
func TestLeaseOlderThanTheWrite(t *testing.T) {
	i := newInterleaving(t)
	i.submit("put k v1")
	i.step()
	var between []*kvpb.Response
	submitted := false
	i.s.c.leaseAsked = func() {
		i.s.c.leaseAsked = nil
		i.s.c.mu.Lock()
		i.s.c.lease = false
		i.s.c.mu.Unlock()
		// Can a write get in between the look at the lease and the taking of writes?
		if mu := &i.leader.replica.m.Mu; mu.TryLock() {
			mu.Unlock()
			i.leader.replica.Submit([]config.Pending{i.s.parseRequest("cas k value=nope v2")})
			submitted = true
		}
	}
	between = i.submit("put other v")
	if i.s.c.leaseAsked != nil {
		t.Fatal("the lease was not looked at")
	}
	if !submitted {
		between = append(between, i.submit("cas k value=nope v2")...)
	}
	if len(between) != 0 {
		t.Fatalf("answered before its entry was applied: %v", between)
	}
	after := append(i.step(), i.step()...)
	if len(after) != 2 || after[1].GetCompareAndSwap() == nil ||
		after[1].GetCompareAndSwap().Swapped {
		t.Fatalf("afterwards: %v", after)
	}
}

// A leader that is deposed while it evaluates a Resolve, and catches up meanwhile with what its
// successor has resolved, does not take what it no longer finds for damage.
func TestResolveWhileDeposed(t *testing.T) {
	s := scenario{t: t, transactions: map[string]*kvpb.Transaction{
		"T1": {Id: transactionID("T1"), Keyspace: 7, Anchor: []byte("k"), Begun: parseStamp("10"),
			Started: parseStamp("10")}}}
	s.c = newTestCluster(t, 2, config.Limits{MaxInFlight: 3})
	t.Cleanup(s.c.close)
	old, next := s.c.members[0], s.c.members[1]
	s.c.elect(old)
	old.catchUp(-1)
	s.c.physical.Advance(time.Second)
	submit := func(m *member, line string) []*kvpb.Response {
		m.replica.Submit([]config.Pending{s.parseRequest(line)})
		s.c.settle()
		return s.answers.take()
	}
	step := func(m *member) []*kvpb.Response {
		m.commit(-1)
		m.catchUp(-1)
		s.c.settle()
		return s.answers.take()
	}
	submit(old, "prepare T1 k=v,l=w seq=201")
	step(old)
	next.catchUp(-1)
	reads := 0
	var resolved []*kvpb.Response
	old.node.Hooks.Read = func() {
		if reads++; reads != 1 {
			return
		}
		s.c.elect(next)
		next.catchUp(-1)
		s.c.physical.Advance(2 * time.Second)
		resolved = append(submit(next, "resolve T1 commit=1010 seq=300"), step(next)...)
		old.catchUp(-1)
	}
	late := submit(old, "resolve T1 commit=1010 seq=301")
	if len(resolved) != 1 || resolved[0].GetResolve() == nil || reads == 0 {
		t.Fatalf("%d look-ups; the successor: %v", reads, resolved)
	}
	if len(late) != 1 || late[0].GetError().GetCode() != kvpb.ErrorCode_NOT_LEADER {
		t.Errorf("the deposed leader was told %v", late)
	}
}

// A leader that is deposed while it evaluates the first attempt of a write, and catches up
// meanwhile with the entry of its successor that has the second one, does not acknowledge it: the
// successor may not have applied it, and a read there would miss it.
func TestRetryAtALaterLeader(t *testing.T) {
	s := scenario{t: t}
	s.c = newTestCluster(t, 2, config.Limits{MaxInFlight: 3})
	t.Cleanup(s.c.close)
	old, next := s.c.members[0], s.c.members[1]
	s.c.elect(old)
	old.catchUp(-1)
	s.c.physical.Advance(time.Second)
	submit := func(m *member, line string) []*kvpb.Response {
		m.replica.Submit([]config.Pending{s.parseRequest(line)})
		s.c.settle()
		return s.answers.take()
	}
	const put = "put k v client=7 seq=1 session=1000"
	old.node.Hooks.Evaluate = func() {
		old.node.Hooks.Evaluate = nil
		s.c.elect(next)
		next.catchUp(-1)
		if again := submit(next, put); len(again) != 0 {
			t.Errorf("the second attempt was answered before it was applied: %v", again)
		}
		next.commit(-1)
		old.catchUp(-1) // the successor knows that it is committed, and applies it later
	}
	first := submit(old, put)
	if len(first) != 1 || first[0].GetError().GetCode() != kvpb.ErrorCode_NOT_LEADER {
		got := submit(next, "get k")
		t.Errorf("the first attempt was told %v; a read of the key that begins after that %v",
			first, got)
	}
	next.catchUp(-1)
	s.c.settle()
	if again := s.answers.take(); len(again) != 1 || again[0].GetPut() == nil {
		t.Errorf("the second attempt was told %v", again)
	}
}

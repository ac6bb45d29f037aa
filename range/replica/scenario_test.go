package replica

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/replica/config"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/txn"
)

// TestScenarios runs the scenario files. Each begins with the sentence that it proves.
//
//	new [replicas=2] [queued=N] [in-flight=N] [entry-bytes=N]
//	elect N                       replica N leads at the next term; its first entry is committed,
//	                              and not applied
//	lose N                        replica N hears that no replica leads
//	again N                       replica N hears once more that it leads
//	submit [to=N]                 a request in each line; see parseRequest. All are submitted in
//	                              one call.
//	multi-get [to=N]              a batch-get in each line; each is asked as a MultiGet of this
//	                              partition
//	commit N [n=K]                the first K of replica N's proposals are committed
//	drop N [n=K]                  the first K of replica N's proposals are lost
//	apply N [n=K] [chunk=K]       replica N applies what is committed, K entries at most
//	step N                        commit N, apply N
//	transfer N to=M               replica N is asked to hand over; prints what it asked of its group
//	restarts N                    how many reads replica N has moved to a later timestamp, by why
//	lease on|off
//	read-index N [error=E]        answers what waits for a read index
//	clock MS                      advances the physical clock
//	suspend N ms=D                the machine of replica N was suspended: its wall clock is right,
//	                              the monotonic one stood still
//	look N                        its node looks at its clock, and believes it
//	clock-trusted N on|off|unheard   whether the clock of replica N's node is believed, from now on;
//	                              unheard: it is, and the replica is not told
//	clock-right N                 the node of replica N finds that its clock was behind, and takes
//	                              the right time
//	quota reached|free             whether keyspaces hold what their quotas allow
//	disk full|free [share=N]      share: the smallest share of the reserve that is left
//	flush N, crash N, reopen N    the state database; crash loses what is not flushed
//	snapshot from=N to=N
//	descriptor generation=N       the leader (auto-committed) changes the descriptor
//	gc window=MS [chunk=K]        the leader (auto-committed) collects garbage, K versions or
//	                              records at a time
//	closed N                      what is closed on replica N
//	close-idle N to=M             replica N closes beside the log, and replica M hears of it
//	closed-lag MS                 how far behind the clock timestamps are closed
//	commit-wait on|off            whether every write has commit wait
//	default-ttl MS                how long a value lives whose write does not say so
//	limits [age=MS] [idle=MS]     how long transactions may hold locks
//	settle N NAME                 from now on the participants of the transaction answer replica N
//	                              that it has no lock left
//	transaction NAME begun=MS [started=MS] [anchor=K]
//	wait N MS                     replica N's waiting requests get older
//	answer N NAME (pending|committed|aborted|error|gone) [at=T] [over=KEY]   replica N's questions
//	                               about a transaction are answered
//	coordinate N                  replica N's questions go to replica N itself, which coordinates
//	locks N                       the lock table
//	state N                       what the replica knows
//	compare                       checksums of all replicas
//	rough                         from now on logical counters are shown as x: several goroutines
//	                              read the clock
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		s := &scenario{t: t}
		defer s.close()
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			out := s.run(d)
			if s.rough {
				out = logical.ReplaceAllString(out, "$1.x")
			}
			return out
		})
	})
}

// logical finds the timestamps with a logical counter.
var logical = regexp.MustCompile(`\b(t\d+(?:\+\d+ns)?)\.\d+`)

type scenario struct {
	t       *testing.T
	c       *testCluster
	answers inbox
	id      uint64
	// rough: logical counters are not shown.
	rough bool
	// admitted are the requests to admit, by name, and admissions what was answered to them.
	admitted   map[string]uint64
	admissions map[uint64]*kvpb.Admission
	// transactions are those that the scenario has named.
	transactions map[string]*kvpb.Transaction
}

func (s *scenario) close() {
	if s.c != nil {
		s.c.close()
	}
}

func (s *scenario) member(d *datadriven.TestData, name string) *member {
	n := 1
	if name == "" {
		n = number(d.CmdArgs[0].Key)
	} else if d.HasArg(name) {
		d.ScanArgs(s.t, name, &n)
	}
	return s.c.members[n-1]
}

func number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		panic(err)
	}
	return n
}

func option(t *testing.T, d *datadriven.TestData, name string, value int) int {
	if d.HasArg(name) {
		d.ScanArgs(t, name, &value)
	}
	return value
}

func (s *scenario) run(d *datadriven.TestData) string {
	var out strings.Builder
	switch d.Cmd {
	case "new":
		s.close()
		s.c = newTestCluster(s.t, option(s.t, d, "replicas", 2), config.Limits{
			MaxQueuedWrites: option(s.t, d, "queued", 0), MaxInFlight: option(s.t, d, "in-flight", 0),
			MaxEntryBytes: option(s.t, d, "entry-bytes", 0),
			MaxSpanLocks:  option(s.t, d, "spans", 0), TotalSpanLocks: option(s.t, d, "all-spans", 0)})
		return ""
	case "elect":
		s.c.elect(s.member(d, ""))
	case "lose":
		m := s.member(d, "")
		m.tell(group.Leadership{Term: m.leadership.Term})
	case "again":
		m := s.member(d, "")
		m.tell(m.leadership)
	case "transfer":
		m := s.member(d, "")
		m.replica.eval.TransferLeader(s.member(d, "to").id)
		s.c.settle()
		m.mu.Lock()
		fmt.Fprintf(&out, "group asked to hand over to %v\n", m.transfers)
		m.mu.Unlock()
	case "submit":
		var pending []config.Pending
		for _, line := range strings.Split(d.Input, "\n") {
			pending = append(pending, s.parseRequest(line))
		}
		s.c.physical.Advance(time.Millisecond)
		s.member(d, "to").replica.Submit(pending)
	case "multi-get":
		m := s.member(d, "to")
		s.c.physical.Advance(time.Millisecond)
		for _, line := range strings.Split(d.Input, "\n") {
			p := s.parseRequest(line)
			q, get := p.Request, p.Request.GetBatchGet()
			part := &kvpb.PartitionKeys{Partition: q.Partition, Generation: q.Generation, Term: q.Term,
				Keys: get.Keys}
			q.Partition, q.Generation, q.Term = 0, 0, 0
			q.Command = &kvpb.Request_MultiGet{MultiGet: &kvpb.MultiGetRequest{
				Partitions: []*kvpb.PartitionKeys{part}, At: get.At, Context: get.Context}}
			m.node.Reads.MultiGet(p, m)
		}
	case "commit":
		s.member(d, "").commit(option(s.t, d, "n", -1))
	case "drop":
		s.member(d, "").drop(option(s.t, d, "n", -1))
	case "apply":
		chunk := []int{}
		if d.HasArg("chunk") {
			chunk = []int{option(s.t, d, "chunk", 1)}
		}
		s.member(d, "").catchUp(option(s.t, d, "n", -1), chunk...)
	case "step":
		s.member(d, "").commit(-1)
		s.member(d, "").catchUp(-1)
	case "lease":
		s.c.mu.Lock()
		s.c.lease = d.CmdArgs[0].Key == "on"
		s.c.leaseLeft = time.Hour
		if d.HasArg("left") {
			s.c.leaseLeft = time.Duration(option(s.t, d, "left", 0)) * time.Millisecond
		}
		s.c.mu.Unlock()
	case "read-index":
		var err error
		if d.HasArg("error") {
			var text string
			d.ScanArgs(s.t, "error", &text)
			err = fmt.Errorf("%s", text)
		}
		s.c.settle()
		s.member(d, "").failReads(err)
	case "rough":
		s.rough = true
	case "clock":
		s.c.physical.Advance(time.Duration(number(d.CmdArgs[0].Key)) * time.Millisecond)
	case "clock-right":
		m := s.member(d, "")
		m.skew = 0
		m.replica.ClockWentForward()
	case "clock-trusted":
		m := s.member(d, "")
		m.untrusted = d.CmdArgs[1].Key == "off"
		if d.CmdArgs[1].Key == "on" {
			m.replica.ClockTrusted()
		}
	case "suspend":
		m := s.member(d, "")
		if m.node.Clock.Steady() == nil {
			m.setClock(hlc.NewClock(hlc.NewSteady(m, m.monotonic, 250*time.Millisecond),
				hlc.FixedBound(250*time.Millisecond)))
		}
		m.slept += time.Duration(option(s.t, d, "ms", 0)) * time.Millisecond
	case "look":
		m := s.member(d, "")
		moved, jumped := m.node.Clock.Steady().Look(nil)
		if jumped {
			m.node.Clock.Steady().Trust()
			m.replica.ClockWentForward()
		}
		return fmt.Sprintf("by %v, jumped: %v", moved, jumped)
	case "skew":
		s.member(d, "").skew = time.Duration(option(s.t, d, "ms", 0)) * time.Millisecond
	case "quota":
		s.c.quota.reached = d.CmdArgs[0].Key == "reached"
	case "disk":
		s.c.full = d.CmdArgs[0].Key == "full"
		s.c.share = group.Share(option(s.t, d, "share", 0))
	case "gone":
		s.c.gone = map[uint64]bool{uint64(number(d.CmdArgs[0].Key)): true}
	case "flush":
		if err := s.member(d, "").state.Flush(); err != nil {
			return err.Error()
		}
	case "crash":
		m := s.member(d, "")
		m.tell(group.Leadership{Term: m.leadership.Term})
		crashed := m.fs.CrashClone(vfs.CrashCloneCfg{})
		m.close()
		m.fs = crashed
		m.drop(-1)
		m.open(len(s.c.members))
	case "reopen":
		m := s.member(d, "")
		m.tell(group.Leadership{Term: m.leadership.Term})
		m.close()
		m.open(len(s.c.members))
	case "snapshot":
		if err := transfer(s.member(d, "from"), s.member(d, "to")); err != nil {
			return err.Error()
		}
	case "descriptor":
		next := testPartition(len(s.c.members))
		next.Generation = uint64(option(s.t, d, "generation", 2))
		s.auto(&out, func(ctx context.Context, r *Replica) error {
			return r.Reshape().ChangeDescriptor(ctx, next)
		})
	case "gc":
		s.auto(&out, func(ctx context.Context, r *Replica) error {
			defer func(n int) { r.gc.Chunk.Versions = n }(r.gc.Chunk.Versions)
			r.gc.Chunk.Versions = option(s.t, d, "chunk", r.gc.Chunk.Versions)
			var protected hlc.Timestamp
			if d.HasArg("protected") {
				protected = hlc.Timestamp{Wall: epoch}.Add(
					time.Duration(option(s.t, d, "protected", 0)) * time.Millisecond)
			}
			r.GC().SetKept(time.Duration(option(s.t, d, "window", 0))*time.Millisecond, protected)
			result, err := r.GC().Collect(ctx, hlc.Timestamp{Wall: s.c.physical.Now()})
			fmt.Fprintf(&out, "threshold %s, removed %d versions\n", stamp(result.Threshold),
				result.Versions)
			if d.HasArg("protected") {
				fmt.Fprintf(&out, "looked through: %t\n", result.Swept)
			}
			for _, m := range s.c.members {
				for _, line := range m.resolved {
					fmt.Fprintln(&out, line)
				}
				m.resolved = nil
			}
			return err
		})
	case "closed":
		fmt.Fprintln(&out, stamp(s.member(d, "").replica.Closed()))
	case "close-idle":
		closed, index, ok := s.member(d, "").replica.CloseIdle()
		if !ok {
			return "nothing"
		}
		fmt.Fprintf(&out, "%s at index %d\n", stamp(closed), index)
		if d.HasArg("to") {
			s.member(d, "to").replica.NoteClosed(closed, index)
		}
	case "closed-lag":
		for _, m := range s.c.members {
			m.replica.SetClosedLag(time.Duration(number(d.CmdArgs[0].Key)) * time.Millisecond)
		}
	case "default-ttl":
		for _, m := range s.c.members {
			m.replica.eval.SetDefaultTTL(time.Duration(number(d.CmdArgs[0].Key)) * time.Millisecond)
		}
	case "commit-wait":
		for _, m := range s.c.members {
			m.replica.eval.SetCommitWait(d.HasArg("on"))
		}
	case "limits":
		ms := func(name string) time.Duration {
			return time.Duration(option(s.t, d, name,
				0)) * time.Millisecond
		}
		s.c.limits = txn.Limits{Age: ms("age"), Idle: ms("idle")}
	case "restarts":
		m := s.member(d, "").node.Metrics
		for why, counter := range []prometheus.Counter{m.Reads.MovedUncertain, m.Reads.MovedCommit,
			m.Reads.MovedCollected} {
			var counted dto.Metric
			if err := counter.Write(&counted); err != nil {
				return err.Error()
			}
			fmt.Fprintf(&out, "%s %v\n", []string{"uncertain", "commit", "collected"}[why],
				counted.GetCounter().GetValue())
		}
	case "state":
		r := s.member(d, "").replica
		r.m.Mu.Lock()
		fmt.Fprintf(&out, "applied %d of term %d, highest %s, %d live keys, %d versions, %d bytes\n",
			r.m.Mu.Applied.Index, r.m.Mu.Applied.Term,
			stamp(r.m.Mu.Applied.Highest), r.m.Mu.Applied.Stats.LiveKeys, r.m.Mu.Applied.Stats.Versions,
			r.m.Mu.Applied.Stats.Bytes)
		if n := r.m.Mu.Applied.Stats.Expiring; n > 0 {
			r.m.Mu.Unlock()
			fmt.Fprintf(&out, "%d versions expire, may have garbage: %t\n", n, r.GC().MayHaveGarbage())
			r.m.Mu.Lock()
		}
		fmt.Fprintf(&out, "serving %t, queued %d, in flight %d, pending keys %d\n",
			r.m.Mu.Leadership.Serving(), r.eval.QueuedLocked(), len(r.m.Mu.InFlight), r.m.Mu.Pending.Len())
		r.m.Mu.Unlock()
	case "compare":
		var first [2]uint64
		for i, m := range s.c.members {
			index, sum, err := m.replica.Checksum()
			if err != nil {
				return err.Error()
			}
			if i == 0 {
				first = [2]uint64{index, sum}
			} else if first != [2]uint64{index, sum} {
				fmt.Fprintf(&out, "replica %s differs: index %d, replica r1 has %d\n",
					m.id, index, first[0])
			}
		}
		if out.Len() == 0 {
			return "equal"
		}
	default:
		if !s.runTransactional(d, &out) {
			s.t.Fatalf("%s: unknown command %s", d.Pos, d.Cmd)
		}
	}
	s.c.settle()
	for _, m := range s.c.members {
		m.pusher.describe(&out)
	}
	for _, response := range s.answers.take() {
		if response.Admission != nil {
			s.admissions[response.Id] = response.Admission
		}
		fmt.Fprintln(&out, describe(response))
	}
	return out.String()
}

// admit notes a request that is to be admitted.
func (s *scenario) admit(name string, id uint64) {
	if s.admitted == nil {
		s.admitted, s.admissions = map[string]uint64{}, map[uint64]*kvpb.Admission{}
	}
	s.admitted[name] = id
}

// auto runs something that waits for its own entries on the leader, committing and applying as they
// come.
func (s *scenario) auto(out *strings.Builder, run func(context.Context, *Replica) error) {
	s.c.mu.Lock()
	s.c.auto = true
	s.c.mu.Unlock()
	for _, m := range s.c.members {
		if m.leadership.IsLeader {
			if err := run(context.Background(), m.replica); err != nil {
				fmt.Fprintln(out, err)
			}
		}
	}
	s.c.mu.Lock()
	s.c.auto = false
	s.c.mu.Unlock()
}

// parseRequest reads a request:
//
//	put K V | delete K | cas K (absent|value=V|version=T) (V|-) | batch K=V,K=-,... | increment K N
//	  | load K=V,K=V,... | delete-range A B [max=N]
//	get K [at=T] | batch-get K,K,... [at=T] | scan A B [max=N] [reverse] [keys-only] [at=T]
//	  [until=T] | count A B [at=T] [max=N]
//	changes A B [above=T] [until=T] [version=T] [size=BYTES] [idle=MS]
//	with any-replica [fresh=T] [wait=MS]: any replica may answer, at T or later
//	with admit=NAME: the leader admits it for another replica
//	with by=NAME [wait=MS]: any replica may answer, by the admission that was the answer to that; or
//	  admission=T index=N [unsure=T], by one that no leader has given
//
// what writes values takes ttl=MS, or ttl=never; and for each: client=N seq=N term=N generation=N
// session=T timeout=MICROS arrived=-MS. Timestamps are milliseconds since the epoch. Without seq
// the sequence is the number of the request.
func (s *scenario) parseRequest(line string) config.Pending {
	s.id++
	q := &kvpb.Request{Id: s.id, Partition: 100, Generation: 1, Term: s.c.term, Sequence: s.id}
	p := config.Pending{Client: 1, Request: q, Reply: s.answers.reply, Arrived: time.Now()}
	var words []string
	options := map[string]string{}
	for _, word := range strings.Fields(line) {
		name, value, found := strings.Cut(word, "=")
		if found && strings.Contains(" client seq term generation session timeout arrived at until "+
			"max value version size txn observed to above pusher seen commit participants keys spans "+
			"least read-at under idle locked fresh wait ttl by admit admission index unsure ",
			" "+name+" ") {
			options[name] = value
		} else {
			words = append(words, word)
		}
	}
	at := func(name string) *kvpb.Timestamp {
		if options[name] == "" {
			return nil
		}
		wall, logical, _ := strings.Cut(options[name], ".")
		ts := &kvpb.Timestamp{Wall: uint64(epoch + int64(number(wall))*1e6)}
		if logical != "" {
			ts.Logical = uint32(number(logical))
		}
		return ts
	}
	count := func(name string) uint32 {
		if options[name] == "" {
			return 0
		}
		return uint32(number(options[name]))
	}
	ttl := int64(0)
	switch options["ttl"] {
	case "":
	case "never":
		ttl = int64(keys.Forever)
	default:
		ttl = int64(number(options["ttl"])) * 1e6
	}
	for name, field := range map[string]*uint64{"seq": &q.Sequence, "term": &q.Term,
		"generation": &q.Generation, "client": &p.Client, "timeout": &q.TimeoutMicros} {
		if options[name] != "" {
			*field = uint64(number(options[name]))
		}
	}
	if options["arrived"] != "" {
		p.Arrived = p.Arrived.Add(time.Duration(number(options["arrived"])) * time.Millisecond)
	}
	q.Session = at("session")
	bound := func(word string) []byte {
		if word == "-" {
			return nil
		}
		return []byte(word)
	}
	switch words[0] {
	case "put":
		value := []byte(words[2])
		if options["size"] != "" {
			value = make([]byte, number(options["size"]))
		}
		q.Command = &kvpb.Request_Put{Put: &kvpb.PutRequest{Key: bound(words[1]), Value: value,
			Ttl: ttl}}
	case "increment":
		q.Command = &kvpb.Request_Increment{Increment: &kvpb.IncrementRequest{Key: bound(words[1]),
			By: int64(number(words[2])), Ttl: ttl}}
	case "load":
		var pairs []string
		for _, pair := range strings.Split(words[1], ",") {
			key, value, _ := strings.Cut(pair, "=")
			pairs = append(pairs, key, value)
		}
		q.Command = loadOf(pairs...).Command
		q.GetLoad().Ttl = ttl
	case "delete":
		q.Command = &kvpb.Request_Delete{Delete: &kvpb.DeleteRequest{Key: bound(words[1])}}
	case "cas":
		c := &kvpb.CompareAndSwapRequest{Key: bound(words[1]), Ttl: ttl}
		switch value, hasValue := options["value"]; {
		case hasValue:
			c.Expected = &kvpb.CompareAndSwapRequest_Value{Value: []byte(value)}
		case options["version"] != "":
			c.Expected = &kvpb.CompareAndSwapRequest_Version{Version: at("version")}
		case words[2] == "absent":
			c.Expected = &kvpb.CompareAndSwapRequest_Absent{Absent: true}
		}
		if last := words[len(words)-1]; last == "-" {
			c.Delete = true
		} else {
			c.NewValue = []byte(last)
		}
		q.Command = &kvpb.Request_CompareAndSwap{CompareAndSwap: c}
	case "batch":
		b := &kvpb.WriteBatchRequest{}
		for _, operation := range strings.Split(words[1], ",") {
			key, value, _ := strings.Cut(operation, "=")
			o := &kvpb.WriteOperation{Key: []byte(key), Value: []byte(value)}
			if value == "-" {
				o.Value, o.Delete = nil, true
			} else {
				o.Ttl = ttl
			}
			b.Operations = append(b.Operations, o)
		}
		q.Command = &kvpb.Request_WriteBatch{WriteBatch: b}
	case "delete-range":
		q.Command = &kvpb.Request_DeleteRange{DeleteRange: &kvpb.DeleteRangeRequest{
			Start: bound(words[1]), End: bound(words[2]), MaxRows: count("max")}}
	case "get":
		q.Command = &kvpb.Request_Get{Get: &kvpb.GetRequest{Key: bound(words[1]), At: at("at")}}
	case "batch-get":
		b := &kvpb.BatchGetRequest{At: at("at")}
		for _, key := range strings.Split(words[1], ",") {
			b.Keys = append(b.Keys, []byte(key))
		}
		q.Command = &kvpb.Request_BatchGet{BatchGet: b}
	case "scan":
		q.Command = &kvpb.Request_Scan{Scan: &kvpb.ScanRequest{Start: bound(words[1]),
			End: bound(words[2]), MaxRows: count("max"),
			Reverse: strings.Contains(line, "reverse"), KeysOnly: strings.Contains(line, "keys-only"),
			At: at("at"), UncertainUntil: at("until")}}
	case "count":
		q.Command = &kvpb.Request_Count{Count: &kvpb.CountRequest{Start: bound(words[1]),
			End: bound(words[2]), MaxRows: count("max"), At: at("at"), UncertainUntil: at("until")}}
	case "changes":
		q.Command = &kvpb.Request_Changes{Changes: &kvpb.ChangesRequest{Start: bound(words[1]),
			End: bound(words[2]), After: at("above"), Upto: at("until"), ResumeVersion: at("version"),
			LimitBytes: count("size"), IdleMicros: 1000 * uint64(count("idle"))}}
	case "none":
	default:
		if !s.parseTransactional(q, words, options, at) {
			s.t.Fatalf("unknown request %q", line)
		}
		for _, m := range q.GetPrepare().GetMutations() {
			if m.Kind == kvpb.Mutation_PUT {
				m.Ttl = ttl
			}
		}
	}
	s.addContext(q, line, options, at)
	if strings.Contains(line, "any-replica") {
		q.ReplicaRead = &kvpb.ReplicaRead{AtLeast: at("fresh"), WaitMicros: 1000 * count("wait")}
	}
	if name := options["admit"]; name != "" {
		q.Admit = true
		s.admit(name, q.Id)
	}
	var by *kvpb.Admission
	switch {
	case options["by"] != "":
		by = s.admissions[s.admitted[options["by"]]]
	case options["index"] != "":
		index, err := strconv.ParseUint(options["index"], 10, 64)
		if err != nil {
			s.t.Fatal(err)
		}
		by = &kvpb.Admission{At: at("admission"), Index: index, UncertainUntil: at("unsure")}
	}
	if by == nil && options["by"] != "" {
		s.t.Fatalf("%s has not been admitted", options["by"])
	}
	if by != nil {
		q.ReplicaRead = &kvpb.ReplicaRead{WaitMicros: 1000 * count("wait"), Admission: by}
	}
	return p
}

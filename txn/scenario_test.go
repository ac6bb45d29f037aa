package txn

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// A scenario is one coordinator, which decides what the file asks. Times are in seconds; its clocks
// agree, and stand unless they are moved.
type scenario struct {
	t       *testing.T
	d       *datadriven.TestData
	present Present
	infos   map[string]*Info
	records map[string]*Record
}

func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata/decision", func(t *testing.T, path string) {
		s := &scenario{t: t, infos: map[string]*Info{}, records: map[string]*Record{}}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			s.d = d
			return s.command()
		})
	})
}

// time is the argument of that name; zero if there is none.
func (s *scenario) time(name string) hlc.Timestamp {
	var text string
	if s.d.MaybeScanArgs(s.t, name, &text); text == "" {
		return hlc.Timestamp{}
	}
	at, err := hlc.Parse(text)
	if err != nil {
		s.d.Fatalf(s.t, "%v", err)
	}
	return at
}

// micros is the argument of that name, seconds, as messages have it; zero if there is none.
func (s *scenario) micros(name string) uint64 {
	return uint64(s.time(name).Wall / 1000)
}

// transaction is the one that an argument names; nil if there is no such argument.
func (s *scenario) transaction(argument string) *Info {
	var name string
	if s.d.MaybeScanArgs(s.t, argument, &name); name == "" {
		return nil
	}
	i := s.infos[name]
	if i == nil {
		s.d.Fatalf(s.t, "no transaction %s has begun", name)
	}
	return i
}

func (s *scenario) command() string {
	switch s.d.Cmd {
	case "clock": // at=TIME [new-leader]
		s.present.Now = s.time("at")
		s.present.Physical = s.present.Now.Wall
		if s.d.HasArg("new-leader") {
			s.present.Since = s.present.Physical
		}
		return "ok\n"
	case "begin": // t=NAME [begun=TIME]: now
		var name string
		s.d.ScanArgs(s.t, "t", &name)
		i := &Info{ID: testID(byte(len(s.infos) + 1)), Begun: s.present.Now, Started: s.present.Now,
			Anchor: []byte(name)}
		if s.d.HasArg("begun") {
			i.Begun = s.time("begun")
		}
		s.infos[name] = i
		return "ok\n"
	case "collect": // threshold=TIME [resolved=NAME]
		s.present.Threshold = s.time("threshold")
		var resolved string
		s.d.MaybeScanArgs(s.t, "resolved", &resolved)
		maps.DeleteFunc(s.records, func(name string, r *Record) bool {
			return r.Collectible(s.present.Threshold, name == resolved)
		})
		return s.show()
	case "limits": // [age=TIME] [idle=TIME]
		s.present.Limits = Limits{Age: time.Duration(s.time("age").Wall),
			Idle: time.Duration(s.time("idle").Wall)}
		return "ok\n"
	case "show":
		return s.show()
	}

	i := s.transaction("t")
	record := s.records[string(i.Anchor)]
	var decision Decision
	switch s.d.Cmd {
	case "commit", "rollback": // t=NAME [at=TIME] [requested [locked]]
		e, err := ParseEnd(&kvpb.EndTransactionRequest{
			Transaction: i.Proto(), Commit: s.d.Cmd == "commit", Requested: s.d.HasArg("requested"),
			CommitTimestamp: wire.ToTimestamp(s.time("at")),
			Participants: []*kvpb.Participant{{Keyspace: uint32(i.Keyspace), Key: i.Anchor,
				Hash: new(uint32)}},
		})
		if err != nil {
			return "invalid: " + err.Error() + "\n"
		}
		present := s.present
		present.Locked = s.d.HasArg("locked")
		decision = DecideEnd(record, e, present)
	case "heartbeat": // t=NAME [idle=TIME]
		h, err := ParseHeartbeat(
			&kvpb.HeartbeatTransactionRequest{Transaction: i.Proto(), IdleMicros: s.micros("idle")})
		if err != nil {
			return "invalid: " + err.Error() + "\n"
		}
		decision = DecideHeartbeat(record, h, s.present)
	case "push": // t=NAME kind=KIND seen=TIME [above=TIME] [by=NAME] [wants=KEY]
		kind := "STATUS"
		s.d.MaybeScanArgs(s.t, "kind", &kind)
		q := &kvpb.PushRequest{
			Pushee: i.Proto(), Seen: wire.ToTimestamp(s.time("seen")),
			Above: wire.ToTimestamp(s.time("above")),
			Kind:  kvpb.PushRequest_Kind(kvpb.PushRequest_Kind_value[kind]),
		}
		if by := s.transaction("by"); by != nil {
			q.Pusher, q.PusherBegun = by.ID.Bytes(), wire.ToTimestamp(by.Begun)
		}
		if s.d.HasArg("wants") {
			var key string
			s.d.ScanArgs(s.t, "wants", &key)
			q.WantedKey, q.WantedKeyspace = []byte(key), 7
		}
		p, err := ParsePush(q)
		if err != nil {
			return "invalid: " + err.Error() + "\n"
		}
		decision = DecidePush(record, p, s.present)
	default:
		s.d.Fatalf(s.t, "unknown command")
	}
	return s.decided(string(i.Anchor), decision)
}

// decided keeps what was decided, and prints it.
func (s *scenario) decided(name string, d Decision) string {
	var b strings.Builder
	if d.Refused != nil {
		e := d.Refused.Proto()
		fmt.Fprintf(&b, "refused: %s%s%s\n", e.Code,
			when(" timestamp=", wire.FromTimestamp(e.Timestamp)), why(" reason=", e.Conflict.GetReason())+
				over(e.Conflict.GetKeyspace(), e.Conflict.GetKey()))
	} else if d.Unknown {
		fmt.Fprintf(&b, "unknown\n")
	} else {
		fmt.Fprintf(&b, "%s%s%s\n", d.Status.State,
			when(" timestamp=", wire.FromTimestamp(d.Status.Timestamp)), why(" reason=", d.Status.Reason)+
				over(d.Status.WantedKeyspace, d.Status.WantedKey))
	}
	if d.Record != nil {
		s.records[name] = d.Record
		fmt.Fprintf(&b, "writes %s\n", describe(d.Record))
	}
	return b.String()
}

func (s *scenario) show() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(s.records)) {
		fmt.Fprintf(&b, "%s: %s\n", name, describe(s.records[name]))
	}
	if b.Len() == 0 {
		return "no records\n"
	}
	return b.String()
}

func describe(r *Record) string {
	text := fmt.Sprintf("%s%s%s heard=%g%s", r.State, when(" timestamp=", r.Timestamp),
		why(" reason=", r.Reason)+over(uint32(r.Wanted.Keyspace), r.Wanted.Key), float64(r.Heard)/1e9,
		when(" finished=", r.Finished))
	if r.Limit > 0 {
		text += fmt.Sprintf(" limit=%s", r.Limit)
	}
	if r.Idle > 0 {
		text += fmt.Sprintf(" idle=%s", r.Idle)
	}
	if n := len(r.Participants); n > 0 {
		text += fmt.Sprintf(" participants=%d", n)
	}
	return text
}

func when(label string, t hlc.Timestamp) string {
	switch {
	case t.IsZero():
		return ""
	case t.Logical > 0:
		return fmt.Sprintf("%s%g+%d", label, float64(t.Wall)/1e9, t.Logical)
	}
	return fmt.Sprintf("%s%g", label, float64(t.Wall)/1e9)
}

func over(keyspace uint32, key []byte) string {
	if len(key) == 0 {
		return ""
	}
	return fmt.Sprintf(" over=%d/%s", keyspace, key)
}

func why(label string, reason kvpb.AbortReason) string {
	if reason == kvpb.AbortReason_NO_REASON {
		return ""
	}
	return label + reason.String()
}

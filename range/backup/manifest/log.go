package manifest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// Names and kinds of the objects of a log.
const (
	// LogHeadsPrefix is the prefix of the heads of all logs. The descriptions of rounds and the data
	// of rounds have different prefixes, so that a list of the rounds is short.
	LogHeadsPrefix = "log/head/"
	roundsRoot     = "log/round/"
	logDataRoot    = "log/data/"

	// LogHeadKind and RoundKind are kinds of sealed objects. LogKind is the kind of pieces.
	LogHeadKind = "log-head"
	RoundKind   = "round"
	LogKind     = "log"

	// stampLayout is the format of the wall time of a timestamp in names, in UTC. Names in this format
	// sort by time.
	stampLayout = "20060102T150405.000000000Z"
)

// LogHeadName is the name of the object with the LogHead.
func LogHeadName(id string) string { return LogHeadsPrefix + id }

// LogOfHead returns the id of the log whose head has the given name. It returns false if the name
// is not that of a log's head.
func LogOfHead(name string) (id string, ok bool) {
	id, found := strings.CutPrefix(name, LogHeadsPrefix)
	return id, found && CheckID(id) == ""
}

// RoundsPrefix is the prefix of the descriptions of all rounds of a log. RoundsOfDay is the prefix
// of the descriptions of the rounds whose After lies in a day of UTC.
func RoundsPrefix(id string) string { return roundsRoot + id + "/" }
func RoundsOfDay(id string, day time.Time) string {
	return RoundsPrefix(id) + day.UTC().Format("20060102T")
}

// LogDataPrefix is the prefix of the data of all rounds of a log.
func LogDataPrefix(id string) string { return logDataRoot + id + "/" }

// stamp formats a moment for a name.
func stamp(at hlc.Timestamp) string {
	return fmt.Sprintf("%s-%010d", at.Time().Format(stampLayout), at.Logical)
}

// RoundName is the name of the Round that begins after a moment. The name depends only on the
// moment, so that a log has only one round after each moment: the first round that is created.
func RoundName(id string, after hlc.Timestamp) string { return RoundsPrefix(id) + stamp(after) }

// RoundOf returns the After of a round from the name of its description or of one of its pieces. It
// returns false if the name does not belong to a round of the log.
func RoundOf(id, name string) (after hlc.Timestamp, ok bool) {
	tail, ok := strings.CutPrefix(name, RoundsPrefix(id))
	if !ok {
		if tail, ok = strings.CutPrefix(name, LogDataPrefix(id)); ok {
			tail, _, ok = strings.Cut(tail, "/")
		}
	}
	wall, digits, split := strings.Cut(tail, "-")
	if !ok || !split {
		return hlc.Timestamp{}, false
	}
	at, err := time.Parse(stampLayout, wall)
	if err != nil {
		return hlc.Timestamp{}, false
	}
	after.Wall = at.UnixNano()
	if n, err := fmt.Sscanf(digits, "%010d", &after.Logical); n != 1 || err != nil {
		return hlc.Timestamp{}, false
	}
	return after, stamp(after) == tail
}

// LogPieceName is the name of a piece of a log. attempt is random, as in PieceName.
func LogPieceName(id string, after hlc.Timestamp, attempt uint64, number int) string {
	return fmt.Sprintf("%s%s/piece/%016x-%04d", LogDataPrefix(id), stamp(after), attempt, number)
}

// LogCoordinationName is the name of a part of the changes of the coordination store.
func LogCoordinationName(id string, after hlc.Timestamp, attempt uint64, part int) string {
	return fmt.Sprintf("%s%s/coordination/%016x-%04d", LogDataPrefix(id), stamp(after), attempt, part)
}

// LogHead describes a log. It contains no key and no name of a keyspace. It never changes.
type LogHead struct {
	Format int    `json:"format"`
	ID     string `json:"id"`
	// Schedule is the name of the schedule that the log belongs to.
	Schedule string `json:"schedule"`
	// Cluster and Version are the same as in Head.
	Cluster string `json:"cluster"`
	Version string `json:"version,omitempty"`
	// Keyspaces are the ids of the keyspaces that the log has from its beginning on.
	Keyspaces []uint32 `json:"keyspaces"`
	// From is the After of the first round.
	From  Timestamp `json:"from"`
	Began time.Time `json:"began"`
	// Revision is the revision of the coordination store at From. Zero means that there is no such
	// store.
	Revision int64 `json:"revision,omitempty"`
	// Recipients is the same as in Head.
	Recipients int `json:"recipients,omitempty"`
	// Partial is set if the log was made for some keyspaces of the cluster only. Logs that version 0.1
	// began do not have the field.
	Partial bool `json:"partial,omitempty"`
}

// Round describes a part of a log: all changes in (After, At].
type Round struct {
	Format  int       `json:"format"`
	Log     string    `json:"log"`
	Cluster string    `json:"cluster"`
	After   Timestamp `json:"after"`
	At      Timestamp `json:"at"`
	// Keyspaces are the keyspaces that the log has at At, without their split points. The After of a
	// keyspace is the After of the round. It is zero if the round before does not have the keyspace:
	// then this round also has everything that could be read at the round's After.
	Keyspaces []Keyspace `json:"keyspaces"`
	// Pieces have the versions. Their rows begin with the id of the keyspace (LogRow). The pieces are
	// in no particular order, and may overlap.
	Pieces []Piece `json:"pieces,omitempty"`
	// Coordination has the changes of the coordination store since the round before, or since an
	// earlier revision, or a whole copy of the store. It is nil if there are no changes.
	Coordination *Blob `json:"coordination,omitempty"`
	// Revision is the revision of the coordination store, and Digest the digest of its leases, users
	// and roles. Revision is zero if the cluster has no such store. The state was fixed before the
	// moment At was chosen.
	Revision int64  `json:"revision,omitempty"`
	Digest   string `json:"digest,omitempty"`
}

// logWidth is the length of the keyspace id at the beginning of a row of a log.
const logWidth = 4

// LogRow returns the row of a log for a row of a keyspace.
func LogRow(keyspace uint32, row []byte) []byte {
	all := make([]byte, logWidth, logWidth+len(row))
	binary.BigEndian.PutUint32(all, keyspace)
	return append(all, row...)
}

// logSpan returns the span of rows of a log for a span of rows of a keyspace.
func logSpan(keyspace uint32, span keys.Span) keys.Span {
	s := keys.Span{Start: LogRow(keyspace, span.Start), End: LogRow(keyspace, span.End)}
	if len(span.End) == 0 {
		if keyspace == ^uint32(0) {
			s.End = nil
		} else {
			s.End = LogRow(keyspace+1, nil)
		}
	}
	return s
}

// Overlapping returns the pieces that may have a row in a span of a keyspace, and the span in rows
// of the log.
func (r *Round) Overlapping(keyspace uint32, span keys.Span) (pieces []Piece, rows keys.Span) {
	rows = logSpan(keyspace, span)
	for _, p := range r.Pieces {
		if (len(rows.End) == 0 || bytes.Compare(p.First, rows.End) < 0) &&
			bytes.Compare(p.Last, rows.Start) >= 0 {
			pieces = append(pieces, p)
		}
	}
	return pieces, rows
}

// CutLogRow returns the keyspace's row within a row of a log. The result aliases its argument.
func CutLogRow(row []byte) []byte { return row[min(len(row), logWidth):] }

// KeyspaceOf returns the keyspace with an id, or nil if the round does not have it.
func (r *Round) KeyspaceOf(id uint32) *Keyspace {
	for i := range r.Keyspaces {
		if r.Keyspaces[i].ID == id {
			return &r.Keyspaces[i]
		}
	}
	return nil
}

// DecodeLogHead reads a LogHead, and checks it.
func DecodeLogHead(data []byte) (*LogHead, error) {
	h := new(LogHead)
	if err := decode(data, h); err != nil {
		return nil, err
	}
	switch {
	case h.Format > Format:
		return nil, ErrNewer
	case h.Format < 1:
		return nil, fmt.Errorf("the format %d of the log is not known", h.Format)
	case CheckID(h.ID) != "":
		return nil, errors.New(CheckID(h.ID))
	case h.From.IsZero():
		return nil, errors.New("the log does not say where it begins")
	}
	return h, nil
}

// DecodeRound reads a Round, and checks it.
func DecodeRound(data []byte) (*Round, error) {
	r := new(Round)
	if err := decode(data, r); err != nil {
		return nil, err
	}
	return r, r.Check()
}

// Check returns an error if the round is not valid.
func (r *Round) Check() error {
	switch {
	case r.Format > Format:
		return ErrNewer
	case r.Format < 1:
		return fmt.Errorf("the format %d of the round is not known", r.Format)
	case CheckID(r.Log) != "":
		return errors.New(CheckID(r.Log))
	case r.After.IsZero() || !r.After.Less(r.At.Timestamp):
		return fmt.Errorf("a round from %v to %v makes no sense", r.After, r.At)
	}
	seen := make(map[uint32]bool)
	for i := range r.Keyspaces {
		ks := &r.Keyspaces[i]
		if seen[ks.ID] || !ks.After.IsZero() && ks.After != r.After {
			return fmt.Errorf("the keyspace %q is in the round twice, or begins at %v", ks.Name, ks.After)
		}
		seen[ks.ID] = true
	}
	for i := range r.Pieces {
		p := &r.Pieces[i]
		if after, ok := RoundOf(r.Log, p.Name); !ok || after != r.After.Timestamp ||
			!strings.HasPrefix(p.Name, LogDataPrefix(r.Log)) {
			return fmt.Errorf("the piece %q is not of the round after %v of the log %s", p.Name, r.After,
				r.Log)
		}
		if err := p.check(); err != nil {
			return err
		}
		if len(p.First) < logWidth || bytes.Compare(p.First, p.Last) > 0 {
			return fmt.Errorf("the piece %q has no rows of a log", p.Name)
		}
	}
	return r.Coordination.check()
}

// Follows returns an error if the round cannot be the next round after another.
func (r *Round) Follows(before *Round) error {
	if r.After != before.At || r.Log != before.Log || r.Cluster != before.Cluster {
		return fmt.Errorf("%w: the log %s ends at %v, and its next round begins at %v of the log %s of "+
			"the cluster %s", ErrBroken, before.Log, before.At, r.After, r.Log, r.Cluster)
	}
	return nil
}

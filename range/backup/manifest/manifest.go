package manifest

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// Format is the format of the manifests that this package writes. The package reads this format and
// earlier ones.
const Format = 1

// Limits of a backup.
const (
	// MaxUnits bounds the units of a plan.
	MaxUnits = 200_000
	// MaxObject bounds an encoded plan or manifest, in bytes.
	MaxObject = 96 << 20
)

// Timestamp is a hybrid timestamp whose JSON form is the text of String.
type Timestamp struct{ hlc.Timestamp }

// At wraps a timestamp.
func At(ts hlc.Timestamp) Timestamp { return Timestamp{ts} }

// MarshalText implements encoding.TextMarshaler. The zero timestamp is empty.
func (t Timestamp) MarshalText() ([]byte, error) {
	if t.IsZero() {
		return nil, nil
	}
	return []byte(t.String()), nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (t *Timestamp) UnmarshalText(text []byte) (err error) {
	t.Timestamp = hlc.Timestamp{}
	if len(text) == 0 {
		return nil
	}
	t.Timestamp, err = hlc.Parse(string(text))
	return err
}

// Kind says whether a backup is full or incremental.
type Kind string

// The kinds of backups.
const (
	Full        Kind = "full"
	Incremental Kind = "incremental"
)

// Head describes a backup. It contains no key and no name of a keyspace, and can be read without an
// identity.
type Head struct {
	Format int    `json:"format"`
	ID     string `json:"id"`
	Kind   Kind   `json:"kind"`
	// Parent is the id of the backup that an incremental backup continues. It is empty for a full
	// backup.
	Parent string `json:"parent,omitempty"`
	// At is the moment that the backup restores. After is the At of the parent.
	At    Timestamp `json:"at"`
	After Timestamp `json:"after"`
	// Cluster is the id of the cluster, and Version the version of the servers that made the backup.
	Cluster string `json:"cluster"`
	Version string `json:"version,omitempty"`
	// Began and Ended are times of the clock of the core's leader. Ended is zero until the backup is
	// complete.
	Began time.Time `json:"began"`
	Ended time.Time `json:"ended"`
	// Recipients is the number of age recipients that can read the backup. Zero means that the backup
	// is not encrypted.
	Recipients int `json:"recipients,omitempty"`
	// Partial is set if keyspaces of the cluster were left out on request.
	Partial bool `json:"partial,omitempty"`
	// Schedule is the name of the schedule that the backup was made for. It is empty if a user asked
	// for the backup.
	Schedule string `json:"schedule,omitempty"`
	// Keyspaces are the ids of the keyspaces in the backup.
	Keyspaces []uint32 `json:"keyspaces"`
	// Totals are set when the backup is complete.
	Totals Totals `json:"totals"`
}

// Totals are sums over the content of a backup.
type Totals struct {
	Keyspaces int    `json:"keyspaces"`
	Pieces    int    `json:"pieces"`
	Records   uint64 `json:"records"`
	// Bytes is the size of the keys and values. Stored is the size of the objects.
	Bytes  uint64 `json:"bytes"`
	Stored uint64 `json:"stored"`
}

// Plan describes what a backup will contain.
type Plan struct {
	Head      Head       `json:"head"`
	Keyspaces []Keyspace `json:"keyspaces"`
	Units     []Unit     `json:"units"`
	// Coordination describes the objects with the coordination store, including leases, users and
	// roles. It is nil if the store was left out.
	Coordination *Blob `json:"coordination,omitempty"`
	// Settings are the operators' settings of placement: the message of the core in the JSON form of
	// protocol buffers. It is empty if the settings are not known.
	Settings json.RawMessage `json:"settings,omitempty"`
}

// Keyspace describes a keyspace at the moment of the backup.
type Keyspace struct {
	ID   uint32 `json:"id"`
	Name string `json:"name"`
	// Definition is the keyspace's record in the core, in the JSON form of protocol buffers.
	Definition json.RawMessage `json:"definition"`
	// Hashed is set for a hash keyspace. Hashes is the number of its partitions.
	Hashed bool   `json:"hashed,omitempty"`
	Hashes uint32 `json:"hashes,omitempty"`
	// Splits are the first rows of all partitions but the first.
	Splits [][]byte `json:"splits,omitempty"`
	// After is the moment after which the backup has all versions. Zero means that the backup has
	// everything that could be read at Head.At.
	After Timestamp `json:"after"`
}

// Unit is a part of a plan that one worker writes: a span of rows of one keyspace. Start is empty
// at the beginning of the keyspace, and End is empty at its end.
type Unit struct {
	Keyspace uint32 `json:"keyspace"`
	Start    []byte `json:"start,omitempty"`
	End      []byte `json:"end,omitempty"`
}

// Span returns the unit's span of rows.
func (u Unit) Span() keys.Span { return keys.Span{Start: u.Start, End: u.End} }

// Piece is an object with records of one unit.
type Piece struct {
	Name string `json:"name"`
	// Size is the number of bytes of the object. Sum is the SHA-256 of the object in hexadecimal
	// digits.
	Size uint64 `json:"size"`
	Sum  string `json:"sum"`
	// First and Last are the first and the last row in the piece.
	First []byte `json:"first"`
	Last  []byte `json:"last"`
	// Records is the number of versions. Bytes is the size of their keys and values.
	Records uint64 `json:"records"`
	Bytes   uint64 `json:"bytes"`
}

// Done describes a finished unit.
type Done struct {
	Unit   int     `json:"unit"`
	Pieces []Piece `json:"pieces,omitempty"`
}

// Manifest describes a complete backup.
type Manifest struct {
	Plan
	// Done has an element for each unit of the plan, in the order of the plan.
	Done []Done `json:"done"`
}

// Blob describes objects without records of keyspaces.
type Blob struct {
	Names []string `json:"names"`
	// Sizes and Sums have the size and the sum of each object, as in Piece.
	Sizes []uint64 `json:"sizes"`
	Sums  []string `json:"sums"`
	// Revision is the revision of the coordination store. Changes is set if the blob is not a copy,
	// but has the changes since the revision Since.
	Revision int64 `json:"revision"`
	Changes  bool  `json:"changes,omitempty"`
	Since    int64 `json:"since,omitempty"`
}

// Encode returns an object's JSON form.
func Encode(object any) ([]byte, error) {
	data, err := json.Marshal(object)
	if err == nil && len(data) > MaxObject {
		err = fmt.Errorf("the backup has too many partitions: its description has %d bytes, the "+
			"limit is %d", len(data), MaxObject)
	}
	return data, err
}

// ErrNewer: the object was written by a later version.
var ErrNewer = errors.New("the backup was made by a later version of tidemark, which is needed " +
	"to read it")

// DecodeHead reads a Head.
func DecodeHead(data []byte) (*Head, error) {
	h := new(Head)
	if err := decode(data, h); err != nil {
		return nil, err
	}
	return h, h.check()
}

// DecodePlan reads a Plan, and checks it.
func DecodePlan(data []byte) (*Plan, error) {
	p := new(Plan)
	if err := decode(data, p); err != nil {
		return nil, err
	}
	return p, p.Check()
}

// DecodeDone reads a Done. The caller checks it against the plan (Plan.CheckDone).
func DecodeDone(data []byte) (*Done, error) {
	d := new(Done)
	return d, decode(data, d)
}

// DecodeManifest reads a Manifest, and checks it.
func DecodeManifest(data []byte) (*Manifest, error) {
	m := new(Manifest)
	if err := decode(data, m); err != nil {
		return nil, err
	}
	return m, m.Check()
}

func decode(data []byte, into any) error {
	if len(data) > MaxObject {
		return fmt.Errorf("the description has %d bytes, the limit is %d", len(data), MaxObject)
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("the description is not valid JSON: %w", err)
	}
	return nil
}

// check returns an error if the head is not valid.
func (h *Head) check() error {
	switch {
	case h.Format > Format:
		return ErrNewer
	case h.Format < 1:
		return fmt.Errorf("the format %d of the backup is not known", h.Format)
	case CheckID(h.ID) != "":
		return errors.New(CheckID(h.ID))
	case h.At.IsZero():
		return errors.New("the backup does not say its moment")
	case h.Kind == Full && h.Parent == "" && h.After.IsZero():
		return nil
	case h.Kind == Incremental && CheckID(h.Parent) == "" && h.After.Less(h.At.Timestamp) &&
		!h.After.IsZero():
		return nil
	}
	return fmt.Errorf("a backup of kind %q with the parent %q, from %v to %v, makes no sense", h.Kind,
		h.Parent, h.After, h.At)
}

// Check returns an error if the plan is not valid: a keyspace occurs twice, or the units do not
// cover each keyspace exactly once, in order.
func (p *Plan) Check() error {
	if err := p.Head.check(); err != nil {
		return err
	}
	if len(p.Units) > MaxUnits {
		return fmt.Errorf("the backup has %d units, the limit is %d", len(p.Units), MaxUnits)
	}
	names := make(map[string]bool)
	next := 0
	for i := range p.Keyspaces {
		ks := &p.Keyspaces[i]
		if names[ks.Name] {
			return fmt.Errorf("the keyspace %q is in the backup twice", ks.Name)
		}
		names[ks.Name] = true
		if !ks.After.IsZero() && ks.After != p.Head.After {
			return fmt.Errorf("the keyspace %q begins at %v, the backup at %v", ks.Name, ks.After,
				p.Head.After)
		}
		covered, err := cover(p.Units[next:], ks)
		if err != nil {
			return err
		}
		next += covered
	}
	if next != len(p.Units) {
		return fmt.Errorf("the backup has units of the keyspace %d, which it does not have",
			p.Units[next].Keyspace)
	}
	return p.Coordination.check()
}

// check returns an error if the blob is not valid. A nil blob is valid.
func (b *Blob) check() error {
	if b != nil &&
		(len(b.Names) != len(b.Sizes) || len(b.Names) != len(b.Sums) || len(b.Names) == 0) {
		return errors.New("the coordination store's objects have no sums")
	}
	return nil
}

// check returns an error if the sizes of the piece are not valid.
func (p *Piece) check() error {
	if sum, err := hex.DecodeString(p.Sum); err != nil || len(sum) != 32 || p.Size == 0 ||
		p.Records == 0 {
		return fmt.Errorf("the piece %q has no sum, no size or no records", p.Name)
	}
	return nil
}

// cover returns the number of units at the beginning of the list that belong to a keyspace. It
// returns an error if they leave a gap.
func cover(units []Unit, ks *Keyspace) (n int, err error) {
	at := []byte{}
	for n < len(units) && units[n].Keyspace == ks.ID {
		u := units[n]
		if !bytes.Equal(u.Start, at) || u.Span().Empty() {
			return n, fmt.Errorf("the unit %v of the keyspace %q does not continue at %s", u.Span(),
				ks.Name, keys.Pretty(at))
		}
		n++
		if len(u.End) == 0 {
			return n, nil
		}
		at = u.End
	}
	return n, fmt.Errorf("the units of the keyspace %q end at %s", ks.Name, keys.Pretty(at))
}

// CheckDone returns an error if the Done of a unit is not valid: pieces belong to another backup or
// unit, lie outside the unit's span, or are out of order.
func (p *Plan) CheckDone(d *Done) error {
	if d.Unit < 0 || d.Unit >= len(p.Units) {
		return fmt.Errorf("the backup has no unit %d", d.Unit)
	}
	span := p.Units[d.Unit].Span()
	var last []byte
	for i := range d.Pieces {
		piece := &d.Pieces[i]
		var unit int
		if _, err := fmt.Sscanf(piece.Name, PiecePrefix(p.Head.ID)+"%06d-", &unit); err != nil ||
			unit != d.Unit {
			return fmt.Errorf("the piece %q is not of unit %d of the backup %s", piece.Name, d.Unit,
				p.Head.ID)
		}
		if err := piece.check(); err != nil {
			return err
		}
		// The versions of one row may be spread over two consecutive pieces.
		if !span.Contains(piece.First) || !span.Contains(piece.Last) ||
			bytes.Compare(piece.First, piece.Last) > 0 || i > 0 && bytes.Compare(last, piece.First) > 0 {
			return fmt.Errorf("the piece %q is not in its place within %v", piece.Name, span)
		}
		last = piece.Last
	}
	return nil
}

// Check returns an error if the manifest is not valid.
func (m *Manifest) Check() error {
	if err := m.Plan.Check(); err != nil {
		return err
	}
	if len(m.Done) != len(m.Units) {
		return fmt.Errorf("%d of %d units are done", len(m.Done), len(m.Units))
	}
	for i := range m.Done {
		if m.Done[i].Unit != i {
			return fmt.Errorf("unit %d comes where unit %d belongs", m.Done[i].Unit, i)
		}
		if err := m.CheckDone(&m.Done[i]); err != nil {
			return err
		}
	}
	return nil
}

// Sum returns the totals of a manifest.
func (m *Manifest) Sum() Totals {
	t := Totals{Keyspaces: len(m.Keyspaces)}
	for i := range m.Done {
		t.Add(&m.Done[i])
	}
	if m.Coordination != nil {
		for _, size := range m.Coordination.Sizes {
			t.Pieces++
			t.Stored += size
		}
	}
	return t
}

// SumOf returns the totals of one keyspace of a manifest.
func (m *Manifest) SumOf(keyspace uint32) Totals {
	t := Totals{Keyspaces: 1}
	for i := range m.Done {
		if m.Units[i].Keyspace == keyspace {
			t.Add(&m.Done[i])
		}
	}
	return t
}

// Add adds a finished unit to the totals.
func (t *Totals) Add(d *Done) {
	for i := range d.Pieces {
		t.Pieces++
		t.Records += d.Pieces[i].Records
		t.Bytes += d.Pieces[i].Bytes
		t.Stored += d.Pieces[i].Size
	}
}

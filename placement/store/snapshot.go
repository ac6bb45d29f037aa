package store

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/cockroachdb/pebble/v2"

	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/group"
)

// A snapshot is the header, blocks of pairs, and a trailer:
//
//	header:  "TMCS", format, index (8 bytes), term (8), CRC-32C of these
//	block:   length (4, not 0), CRC-32C of the content and of the block's number, content
//	content: length of key, length of value (both uvarint), key without the core's
//	         local prefix, value; and so on
//	trailer: 0 (4), number of blocks (8), number of pairs (8), CRC-32C of these
//
// Numbers are big endian. Keys ascend.
const (
	snapshotMagic  = "TMCS"
	snapshotFormat = 1
	blockTarget    = 256 << 10
	// maxBlock bounds what a block may claim to be: one pair can be as large as a command, or a
	// kept answer.
	maxBlock = blockTarget + 2*MaxCommandBytes
)

var (
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
	// ErrSnapshot says that a snapshot is damaged, or not one of the core's store.
	ErrSnapshot = errors.New("the snapshot of the core's store is damaged")
)

// snapshot is a state to be streamed. It implements group.Snapshot.
type snapshot struct {
	store       *Store
	it          *pebble.Iterator
	index, term uint64
	members     *storepb.Members
}

// Snapshot implements group.StateMachine. It may run beside Apply.
func (s *Store) Snapshot() (group.Snapshot, error) {
	r, err := s.open(s.config.State)
	if err != nil {
		return nil, err
	}
	// Apply may run beside this, so the applied index comes from where the content comes from.
	index, term, err := r.applied()
	if err == nil && index == 0 {
		err = errors.New("nothing was applied to the core's store yet: there is nothing to send")
	}
	var members *storepb.Members
	if err == nil {
		members, err = r.members()
	}
	if err != nil {
		s.done(r)
		return nil, fmt.Errorf("snapshot of the core's store: %w", err)
	}
	if members == nil {
		members = s.founding()
	}
	return &snapshot{store: s, it: r.it, index: index, term: term, members: members}, nil
}

func (p *snapshot) Index() uint64 { return p.index }
func (p *snapshot) Term() uint64  { return p.term }

func (p *snapshot) Close() error {
	if p.it == nil {
		return nil
	}
	err := p.it.Close()
	p.it = nil
	p.store.mu.readers.Done()
	return err
}

func blockSum(content []byte, n uint64) uint32 {
	return crc32.Update(crc32.Checksum(content, castagnoli), castagnoli, number(n))
}

func withSum(b []byte) []byte {
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// Write implements group.Snapshot.
func (p *snapshot) Write(ctx context.Context, w io.Writer) error {
	header := append([]byte(snapshotMagic), snapshotFormat)
	header = withSum(append(header, encodeApplied(p.index, p.term)...))
	if _, err := w.Write(header); err != nil {
		return err
	}
	var content []byte
	var blocks, pairs uint64
	flush := func() error {
		if len(content) == 0 {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		head := binary.BigEndian.AppendUint32(nil, uint32(len(content)))
		head = binary.BigEndian.AppendUint32(head, blockSum(content, blocks))
		blocks++
		if _, err := w.Write(head); err != nil {
			return err
		}
		_, err := w.Write(content)
		content = content[:0]
		return err
	}
	for ok := p.it.First(); ok; ok = p.it.Next() {
		value, err := p.it.ValueAndErr()
		if err != nil {
			return err
		}
		key := p.it.Key()[localPrefixLength:]
		content = binary.AppendUvarint(content, uint64(len(key)))
		content = binary.AppendUvarint(content, uint64(len(value)))
		content = append(append(content, key...), value...)
		pairs++
		if len(content) >= blockTarget {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	if err := p.it.Error(); err != nil {
		return fmt.Errorf("read the core's store for a snapshot: %w", err)
	}
	if err := flush(); err != nil {
		return err
	}
	trailer := withSum(append(number(blocks), number(pairs)...))
	_, err := w.Write(append(make([]byte, 4), trailer...))
	return err
}

// snapshotReader reads pairs and verifies all that can be verified.
type snapshotReader struct {
	r             io.Reader
	content       []byte
	blocks, pairs uint64
	last          []byte
	// members are those of the founding until it has said which they are.
	members *storepb.Members
}

func (s *snapshotReader) header() (index, term uint64, err error) {
	b := make([]byte, len(snapshotMagic)+1+appliedLength+4)
	if _, err := io.ReadFull(s.r, b); err != nil {
		return 0, 0, fmt.Errorf("%w: header: %w", ErrSnapshot, err)
	}
	n := len(b) - 4
	switch {
	case crc32.Checksum(b[:n], castagnoli) != binary.BigEndian.Uint32(b[n:]) ||
		string(b[:4]) != snapshotMagic:
		return 0, 0, fmt.Errorf("%w: its header is", ErrSnapshot)
	case b[4] != snapshotFormat:
		return 0, 0, fmt.Errorf("the snapshot of the core's store has format %d, this version "+
			"knows %d: a newer version wrote it", b[4], snapshotFormat)
	}
	return decodeApplied(b[5:n])
}

// next returns the next pair, whose key is without the local prefix, or io.EOF behind a sound
// trailer. Both are valid until the next call.
func (s *snapshotReader) next() (key, value []byte, err error) {
	if len(s.content) == 0 {
		if err := s.block(); err != nil {
			return nil, nil, err
		}
	}
	keyLength, n := binary.Uvarint(s.content)
	if n <= 0 {
		return nil, nil, fmt.Errorf("%w: pair %d", ErrSnapshot, s.pairs)
	}
	valueLength, m := binary.Uvarint(s.content[n:])
	rest := s.content[n+max(m, 0):]
	if m <= 0 || keyLength > uint64(len(rest)) || valueLength > uint64(len(rest))-keyLength {
		return nil, nil, fmt.Errorf("%w: pair %d", ErrSnapshot, s.pairs)
	}
	key, value = rest[:keyLength], rest[keyLength:keyLength+valueLength]
	s.content = rest[keyLength+valueLength:]
	s.pairs++
	return key, value, nil
}

func (s *snapshotReader) block() error {
	var head [8]byte
	if _, err := io.ReadFull(s.r, head[:4]); err != nil {
		return fmt.Errorf("%w: it ends after %d pairs: %w", ErrSnapshot, s.pairs, noEOF(err))
	}
	size := binary.BigEndian.Uint32(head[:4])
	if size == 0 {
		return s.trailer()
	}
	if size > maxBlock {
		return fmt.Errorf("%w: block %d claims %d bytes", ErrSnapshot, s.blocks, size)
	}
	if _, err := io.ReadFull(s.r, head[4:]); err != nil {
		return fmt.Errorf("%w: it ends after %d pairs: %w", ErrSnapshot, s.pairs, noEOF(err))
	}
	// Grown as bytes come, so that a false length costs no memory.
	var buffer bytes.Buffer
	if _, err := io.CopyN(&buffer, s.r, int64(size)); err != nil {
		return fmt.Errorf("%w: it ends after %d pairs: %w", ErrSnapshot, s.pairs, noEOF(err))
	}
	s.content = buffer.Bytes()
	if blockSum(s.content, s.blocks) != binary.BigEndian.Uint32(head[4:]) {
		return fmt.Errorf("%w: the sum of block %d is wrong", ErrSnapshot, s.blocks)
	}
	s.blocks++
	return nil
}

func (s *snapshotReader) trailer() error {
	var b [20]byte
	if _, err := io.ReadFull(s.r, b[:]); err != nil {
		return fmt.Errorf("%w: trailer: %w", ErrSnapshot, noEOF(err))
	}
	if crc32.Checksum(b[:16], castagnoli) != binary.BigEndian.Uint32(b[16:]) ||
		binary.BigEndian.Uint64(b[:]) != s.blocks || binary.BigEndian.Uint64(b[8:]) != s.pairs {
		return fmt.Errorf("%w: the trailer does not fit", ErrSnapshot)
	}
	if n, err := io.ReadFull(s.r, b[:1]); n != 0 || !errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: something follows the trailer", ErrSnapshot)
	}
	return io.EOF
}

// noEOF keeps a premature end from looking like the end.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// staged is a verified snapshot in a table of its own. It implements group.Staged.
type staged struct {
	store   *Store
	paths   []string
	members *storepb.Members
}

// StageSnapshot implements group.StateMachine.
func (s *Store) StageSnapshot(
	ctx context.Context, index, term uint64, r io.Reader,
) (group.Staged, error) {
	w, err := s.config.State.NewTableWriter()
	if err != nil {
		return nil, err
	}
	defer w.Abort()
	// In one step, what was there goes and what the snapshot has comes.
	if err := w.DeleteRange(s.layout.span.Start, s.layout.span.End); err != nil {
		return nil, err
	}
	in := &snapshotReader{r: r, members: s.founding()}
	if err := s.layout.verify(ctx, w, index, term, in); err != nil {
		return nil, err
	}
	path, err := w.Finish()
	if err != nil {
		return nil, err
	}
	return &staged{store: s, paths: []string{path}, members: in.members}, nil
}

// pairWriter is what a verified snapshot is written to; engine.TableWriter is one.
type pairWriter interface{ Set(key, value []byte) error }

var _ pairWriter = (*engine.TableWriter)(nil)

func (l *layout) verify(
	ctx context.Context, w pairWriter, index, term uint64, in *snapshotReader,
) error {
	gotIndex, gotTerm, err := in.header()
	if err != nil {
		return err
	}
	if gotIndex != index || gotTerm != term {
		return fmt.Errorf("%w: it is of index %d at term %d, announced was index %d at term %d",
			ErrSnapshot, gotIndex, gotTerm, index, term)
	}
	prefix := l.prefix()
	hasApplied := false
	for {
		key, value, err := in.next()
		if errors.Is(err, io.EOF) && !errors.Is(err, ErrSnapshot) {
			break
		}
		if err != nil {
			return err
		}
		full := append(bytes.Clone(prefix), key...)
		if err := l.verifyPair(full, value, in.last); err != nil {
			return err
		}
		if bytes.Equal(full, l.applied) {
			hasApplied = bytes.Equal(value, encodeApplied(index, term))
		}
		if bytes.Equal(full, l.members) {
			if in.members, err = decodeMembers(value); err != nil {
				return fmt.Errorf("%w: %w", ErrSnapshot, err)
			}
		}
		in.last = full
		if err := w.Set(full, value); err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	if !hasApplied {
		return fmt.Errorf("%w: its applied index is not that of its header", ErrSnapshot)
	}
	return nil
}

// verifyPair checks that a pair is one that this package writes, and that it comes after the last.
func (l *layout) verifyPair(key, value, last []byte) (err error) {
	if len(key) < localPrefixLength+2 {
		return fmt.Errorf("%w: a key is too short", ErrSnapshot)
	}
	var record interface{ UnmarshalVT([]byte) error }
	table := key[localPrefixLength]
	switch suffix := int(key[len(key)-1]); {
	case table == tableVersion:
		_, _, err = decodeVersionKey(key)
		record = &storepb.VersionRecord{}
	case suffix != noVersion:
		err = errors.New("a key has a version")
	case table == tableEvent:
		_, _, err = decodeEventKey(key)
	case table == tableMeta:
		record = &storepb.MetaRecord{}
	case bytes.Equal(key, l.members):
		record = &storepb.Members{}
	case bytes.Equal(key, l.auth):
		record = &storepb.AuthRecord{}
	case table == tableUser:
		_, err = decodeNameKey(key)
		record = &storepb.UserRecord{}
	case table == tableRole:
		_, err = decodeNameKey(key)
		record = &storepb.RoleRecord{}
	case table == tableAlarm:
		_, _, err = decodeNumberKey(key)
		record = &storepb.Alarm{}
	case table == tableLease:
		_, _, err = decodeNumberKey(key)
		record = &storepb.LeaseRecord{}
	case table == tableSession:
		_, _, err = decodeNumberKey(key)
		record = &storepb.SessionRecord{}
	case table == tableAttached:
		_, _, err = decodeNumberKey(key)
	case table == tableAnswer:
		_, _, err = decodeNumberKey(key)
		record = &storepb.Result{}
	case !bytes.Equal(key, l.applied):
		err = fmt.Errorf("table %q is not known to this version", table)
	}
	if err == nil && record != nil {
		err = record.UnmarshalVT(value)
	}
	if err == nil && last != nil && compareKeys(last, key) >= 0 {
		err = errors.New("its keys do not ascend")
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrSnapshot, err)
	}
	return nil
}

// Install implements group.Staged.
func (p *staged) Install() error {
	s := p.store
	if err := s.hub.Replace(func() (uint64, error) {
		if err := s.config.State.Ingest(context.Background(), p.paths); err != nil {
			return 0, err
		}
		if err := s.load(); err != nil {
			return 0, fmt.Errorf("after a snapshot was installed: %w", err)
		}
		return s.Revision(), nil
	}); err != nil {
		return err
	}
	s.skipped()
	return nil
}

// Discard implements group.Staged.
func (p *staged) Discard() { p.store.config.State.DiscardTables(p.paths) }

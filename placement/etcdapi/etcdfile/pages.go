package etcdfile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
)

// ErrDamaged says that a file was not written by etcd, or is damaged.
var ErrDamaged = errors.New("the file is damaged, or no snapshot of etcd")

func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrDamaged, fmt.Sprintf(format, args...))
}

// A file of bbolt consists of pages, all numbers little endian. Pages 0 and 1 each have a meta
// record, of which the newer valid one counts. It names the root page of a B+ tree of buckets, and
// a bucket has the root page of its own tree, or the content of that page itself if it is small.
//
//	page:    id (8), flags (2), count (2), by how many pages it is longer than one (4), elements
//	branch:  position (4), size of key (4), page (8); and so on. Positions count from the element
//	leaf:    flags (4), position (4), size of key (4), size of value (4); and so on
//	bucket:  root page (8), sequence (8), the page if the root is 0
//
// The file is read with ReadAt, and nothing in it is trusted: a page is read at most once, so
// references cannot form a circle.
const (
	pageHeader  = 16
	elementSize = 16
	metaSize    = 64
	bucketSize  = 16

	branchPage = 0x01
	leafPage   = 0x02
	bucketLeaf = 0x01 // of an element

	boltMagic   = 0xED0CDAED
	boltVersion = 2

	maxDepth = 64
	// maxPageBytes bounds one page. A page is a little larger than its largest key and value.
	maxPageBytes = 256 << 20
)

// pages reads the trees of a bbolt file.
type pages struct {
	file     io.ReaderAt
	size     int64
	pageSize int64
	// root is the root of the tree of buckets, and limit the first unused page.
	root, limit uint64
	// left is how many more pages may be read.
	left uint64
}

// openPages reads the meta records of a file.
func openPages(file io.ReaderAt, size int64) (*pages, error) {
	var newest *pages
	var transaction uint64
	for _, at := range metaOffsets() {
		p, id, ok := readMeta(file, size, at)
		if ok && (newest == nil || id > transaction) {
			newest, transaction = p, id
		}
	}
	if newest == nil {
		return nil, damaged("it has no meta page")
	}
	if newest.limit > uint64(size/newest.pageSize) {
		return nil, damaged("it has %d bytes, and should have %d pages of %d", size, newest.limit,
			newest.pageSize)
	}
	newest.left = newest.limit
	return newest, nil
}

// metaOffsets lists the offsets at which meta records may be: on the first page, or the second, for
// any page size.
func metaOffsets() []int64 {
	offsets := []int64{0}
	for size := int64(512); size <= 64<<10; size *= 2 {
		offsets = append(offsets, size)
	}
	return offsets
}

func readMeta(file io.ReaderAt, size, at int64) (p *pages, transaction uint64, ok bool) {
	var b [pageHeader + metaSize]byte
	if _, err := file.ReadAt(b[:], at); err != nil {
		return nil, 0, false
	}
	meta := b[pageHeader:]
	sum := fnv.New64a()
	sum.Write(meta[:metaSize-8])
	pageSize := int64(binary.LittleEndian.Uint32(meta[8:]))
	if binary.LittleEndian.Uint32(meta) != boltMagic ||
		binary.LittleEndian.Uint32(meta[4:]) != boltVersion ||
		binary.LittleEndian.Uint64(meta[metaSize-8:]) != sum.Sum64() ||
		pageSize < 512 || pageSize > 64<<10 || pageSize&(pageSize-1) != 0 ||
		at != 0 && at != pageSize {
		return nil, 0, false
	}
	return &pages{file: file, size: size, pageSize: pageSize,
		root:  binary.LittleEndian.Uint64(meta[16:]),
		limit: binary.LittleEndian.Uint64(meta[40:])}, binary.LittleEndian.Uint64(meta[48:]), true
}

// read reads a page. offset is its offset in the file.
func (p *pages) read(id uint64) (page []byte, offset int64, err error) {
	if id < 2 || id >= p.limit {
		return nil, 0, damaged("it refers to page %d of %d", id, p.limit)
	}
	if p.left == 0 {
		return nil, 0, damaged("its pages refer to each other in a circle")
	}
	p.left--
	offset = int64(id) * p.pageSize
	page = make([]byte, p.pageSize)
	if _, err := p.file.ReadAt(page, offset); err != nil {
		return nil, 0, fmt.Errorf("page %d: %w", id, err)
	}
	if binary.LittleEndian.Uint64(page) != id {
		return nil, 0, damaged("page %d calls itself %d", id, binary.LittleEndian.Uint64(page))
	}
	more := int64(binary.LittleEndian.Uint32(page[12:]))
	if more == 0 {
		return page, offset, nil
	}
	total := (1 + more) * p.pageSize
	if total > maxPageBytes || offset+total > p.size {
		return nil, 0, damaged("page %d claims %d bytes", id, total)
	}
	page = append(make([]byte, 0, total), page...)[:total]
	if _, err := p.file.ReadAt(page[p.pageSize:], offset+p.pageSize); err != nil {
		return nil, 0, fmt.Errorf("page %d: %w", id, err)
	}
	return page, offset, nil
}

// element is a key and a value of a leaf; both are valid until the next element is visited.
type element struct {
	key, value []byte
	// offset is the value's offset in the file.
	offset int64
	bucket bool
}

// walk visits the elements of a tree, in its order.
func (p *pages) walk(root uint64, depth int, visit func(element) error) error {
	page, offset, err := p.read(root)
	if err != nil {
		return err
	}
	return p.walkPage(page, offset, depth, visit)
}

func (p *pages) walkPage(page []byte, offset int64, depth int, visit func(element) error) error {
	if depth > maxDepth {
		return damaged("a tree of it is more than %d pages deep", maxDepth)
	}
	count := int(binary.LittleEndian.Uint16(page[10:]))
	if pageHeader+count*elementSize > len(page) {
		return damaged("a page claims %d elements", count)
	}
	flags := binary.LittleEndian.Uint16(page[8:])
	if flags != branchPage && flags != leafPage {
		return damaged("a page of a tree is of kind %d", flags)
	}
	for i := range count {
		at := pageHeader + i*elementSize
		head := page[at : at+elementSize]
		if flags == branchPage {
			if err := p.walk(binary.LittleEndian.Uint64(head[8:]), depth+1, visit); err != nil {
				return err
			}
			continue
		}
		start := uint64(at) + uint64(binary.LittleEndian.Uint32(head[4:]))
		middle := start + uint64(binary.LittleEndian.Uint32(head[8:]))
		end := middle + uint64(binary.LittleEndian.Uint32(head[12:]))
		if end > uint64(len(page)) {
			return damaged("an element ends behind its page")
		}
		if err := visit(element{key: page[start:middle], value: page[middle:end],
			offset: offset + int64(middle),
			bucket: binary.LittleEndian.Uint32(head)&bucketLeaf != 0}); err != nil {
			return err
		}
	}
	return nil
}

// buckets visits the contents of some of the buckets, in the given order.
func (p *pages) buckets(names []string, visit func(name string, e element) error) error {
	found := map[string]element{}
	if err := p.walk(p.root, 0, func(e element) error {
		if e.bucket {
			e.value = bytes.Clone(e.value)
			found[string(e.key)] = e
		}
		return nil
	}); err != nil {
		return err
	}
	for _, name := range names {
		e, ok := found[name]
		if !ok {
			continue
		}
		if err := p.bucket(e, func(e element) error { return visit(name, e) }); err != nil {
			return fmt.Errorf("bucket %s: %w", name, err)
		}
	}
	return nil
}

func (p *pages) bucket(e element, visit func(element) error) error {
	if len(e.value) < bucketSize {
		return damaged("it has no root")
	}
	if root := binary.LittleEndian.Uint64(e.value); root != 0 {
		return p.walk(root, 0, visit)
	}
	page := e.value[bucketSize:]
	if len(page) < pageHeader {
		return damaged("its page is too short")
	}
	return p.walkPage(page, e.offset+bucketSize, 0, visit)
}

package target

import (
	"fmt"
	"strings"
)

const (
	// MaxName is the length of the longest name of an object, in bytes.
	MaxName = 512
	// MaxSegment is the length of the longest segment of a name, in bytes. The name of a temporary
	// file is a segment with additions, and must fit into the limit of file systems.
	MaxSegment = 200
)

// CheckName returns an error if the name of an object is not valid. A name has segments of letters,
// digits, dots, underscores and hyphens, separated by single slashes. No segment is "." or "..".
func CheckName(name string) error {
	if len(name) > MaxName {
		return fmt.Errorf("%w: the name %.40q... has %d bytes; %d is the limit", ErrInvalid, name,
			len(name), MaxName)
	}
	for segment := range strings.SplitSeq(name, "/") {
		switch {
		case segment == "":
			return fmt.Errorf("%w: the name %q has an empty segment", ErrInvalid, name)
		case segment == ".", segment == "..":
			return fmt.Errorf("%w: the name %q has the segment %q", ErrInvalid, name, segment)
		case len(segment) > MaxSegment:
			return fmt.Errorf("%w: a segment of the name %q has %d bytes; %d is the limit", ErrInvalid,
				name, len(segment), MaxSegment)
		}
		if strings.ContainsFunc(segment, notInNames) {
			return fmt.Errorf("%w: the name %q may have letters a-z and A-Z, digits, dots, underscores, "+
				"hyphens and slashes only", ErrInvalid, name)
		}
	}
	return nil
}

// notInNames reports whether a character may not be in a segment.
func notInNames(r rune) bool {
	switch {
	case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9',
		r == '.', r == '_', r == '-':
		return false
	}
	return true
}

// checkPrefix returns an error if a prefix is not valid. A prefix is empty, or can be continued to
// a valid name.
func checkPrefix(prefix string) error {
	if prefix == "" {
		return nil
	}
	// The last segment of the prefix may be incomplete. It is valid if it can be continued, such as
	// "." to ".a".
	whole, last := "", prefix
	if i := strings.LastIndexByte(prefix, '/'); i >= 0 {
		whole, last = prefix[:i], prefix[i+1:]
		if err := CheckName(whole); err != nil {
			return err
		}
	}
	if last == "" || last == "." || last == ".." {
		return nil
	}
	return CheckName(last)
}

// checkObject returns an error if the name or the size of an object that should be written is not
// valid.
func checkObject(name string, data []byte) error {
	if err := CheckName(name); err != nil {
		return err
	}
	if len(data) > MaxObject {
		return fmt.Errorf("%w: the object %s has %d bytes; %d MiB is the limit", ErrInvalid, name,
			len(data), MaxObject>>20)
	}
	return nil
}

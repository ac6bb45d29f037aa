package keys

import (
	"fmt"
	"time"
	"unicode"
	"unicode/utf8"
)

const (
	// MaxConsumerName bounds the length of a consumer's name, in bytes.
	MaxConsumerName = 256
	// MaxConsumerBound bounds the length of the start and the end of a consumer's span, in bytes.
	MaxConsumerBound = 1 << 10
	// MinConsumerKeep and MaxConsumerKeep bound how long history is kept for a consumer;
	// DefaultConsumerKeep is the default.
	MinConsumerKeep     = time.Second
	MaxConsumerKeep     = 7 * 24 * time.Hour
	DefaultConsumerKeep = 24 * time.Hour
)

// ValidateConsumerName checks the name of a consumer.
func ValidateConsumerName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("a consumer needs a name")
	case len(name) > MaxConsumerName:
		return fmt.Errorf("the name of a consumer has at most %d bytes, and this one has %d",
			MaxConsumerName, len(name))
	case !utf8.ValidString(name):
		return fmt.Errorf("the name of a consumer is text in UTF-8, and %s is not",
			Pretty([]byte(name)))
	}
	for _, c := range name {
		if !unicode.IsPrint(c) {
			return fmt.Errorf("the name of a consumer has printable characters and spaces only, "+
				"and %s has others", Pretty([]byte(name)))
		}
	}
	return nil
}

// ValidateConsumerKeep checks how long history is to be kept for a consumer, in milliseconds; 0
// means not given.
func ValidateConsumerKeep(millis uint64) error {
	if millis != 0 && (millis < uint64(MinConsumerKeep.Milliseconds()) ||
		millis > uint64(MaxConsumerKeep.Milliseconds())) {
		return fmt.Errorf("history is kept for a consumer from %s to %s, not for %d ms",
			MinConsumerKeep, MaxConsumerKeep, millis)
	}
	return nil
}

// ValidateConsumerSpan checks the span of user keys of which a consumer is to receive the changes.
func ValidateConsumerSpan(span Span) error {
	if span.Empty() {
		return fmt.Errorf("a consumer is of keys, and there are none in the span that begins at %s",
			Pretty(span.Start))
	}
	for _, bound := range [...][]byte{span.Start, span.End} {
		if len(bound) > MaxConsumerBound {
			return fmt.Errorf("the span of a consumer begins and ends at keys of at most %d "+
				"bytes, not at %s",
				MaxConsumerBound, Pretty(bound))
		}
	}
	return nil
}

// DescribeSpan describes a span of user keys in words.
func DescribeSpan(span Span) string {
	switch {
	case len(span.Start) == 0 && len(span.End) == 0:
		return "all keys"
	case len(span.End) == 0:
		return "the keys from " + Pretty(span.Start) + " on"
	case len(span.Start) == 0:
		return "the keys below " + Pretty(span.End)
	}
	return "the keys from " + Pretty(span.Start) + " to " + Pretty(span.End)
}

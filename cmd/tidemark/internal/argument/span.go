package argument

import (
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// Span selects the keys for a verb.
type Span struct {
	Encoding
	prefix, from, to string
	changed          func(flag string) bool
}

// Register adds the flags.
func (s *Span) Register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&s.prefix, "prefix", "", "keys that begin with this")
	flags.StringVar(&s.from, "from", "", "keys from this one on")
	flags.StringVar(&s.to, "to", "", "keys below this one, which is itself left out")
	s.Encoding.Register(cmd)
	cmd.MarkFlagsMutuallyExclusive("prefix", "from")
	cmd.MarkFlagsMutuallyExclusive("prefix", "to")
	s.changed = flags.Changed
}

// Options returns the span's options for the SDK. It returns none if no flag was given.
func (s *Span) Options() (options []kv.SpanOption, err error) {
	for _, flag := range []struct {
		name, text string
		option     func([]byte) kv.SpanOption
	}{{"prefix", s.prefix, kv.Prefix}, {"from", s.from, kv.From}, {"to", s.to, kv.To}} {
		if !s.changed(flag.name) {
			continue
		}
		key, err := s.Decode("--"+flag.name, flag.text)
		if err != nil {
			return nil, err
		}
		options = append(options, flag.option(key))
	}
	return options, nil
}

// Keys returns the span of user keys. It returns all keys if no flag was given.
func (s *Span) Keys() (span keys.Span, err error) {
	for _, flag := range []struct {
		name, text string
		set        func([]byte)
	}{
		{"prefix", s.prefix, func(p []byte) { span = keys.Span{Start: p, End: keys.PrefixEnd(p)} }},
		{"from", s.from, func(k []byte) { span.Start = k }},
		{"to", s.to, func(k []byte) { span.End = k }},
	} {
		if !s.changed(flag.name) {
			continue
		}
		key, err := s.Decode("--"+flag.name, flag.text)
		if err != nil {
			return keys.Span{}, err
		}
		flag.set(key)
	}
	return span, nil
}

// String returns the span in the form of its flags. It is empty if no flag was given.
func (s *Span) String() string {
	var given []string
	for _, flag := range [...]struct{ name, text string }{{"prefix", s.prefix}, {"from", s.from},
		{"to", s.to}} {
		if s.changed(flag.name) {
			given = append(given, "--"+flag.name+" "+strconv.Quote(flag.text))
		}
	}
	return strings.Join(given, " ")
}

package main

/*
#cgo LDFLAGS: -lcarole
#include <carole.h>
#include <stdlib.h>
*/
import "C"

import (
	"fmt"
	"runtime"
	"unsafe"
)

// Error is a call of libcarole that failed.
type Error struct {
	Name string
	Text string
}

func (e *Error) Error() string { return e.Name + ": " + e.Text }

// call runs f and turns what it answers into an error. The text of an error belongs to the thread
// that got it, so the goroutine stays on its thread meanwhile.
func call(f func() C.carole_result) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if result := f(); result != C.CAROLE_OK {
		return &Error{
			Name: C.GoString(C.carole_result_name(result)),
			Text: C.GoString(C.carole_last_error()),
		}
	}
	return nil
}

// Session is this process as a member of its job.
type Session struct {
	handle *C.carole_session
	Rank   int
	Size   int
}

// Join joins the job that this process was started for.
func Join() (*Session, error) {
	var handle *C.carole_session
	if err := call(func() C.carole_result { return C.carole_init(nil, &handle) }); err != nil {
		return nil, err
	}
	var rank, size C.int
	for _, ask := range []func() C.carole_result{
		func() C.carole_result { return C.carole_rank(handle, &rank) },
		func() C.carole_result { return C.carole_size(handle, &size) },
	} {
		if err := call(ask); err != nil {
			return nil, err
		}
	}
	return &Session{handle: handle, Rank: int(rank), Size: int(size)}, nil
}

// Leave leaves the job in good order.
func (s *Session) Leave() error {
	return call(func() C.carole_result { return C.carole_finalize(s.handle) })
}

// Barrier waits for all ranks.
func (s *Session) Barrier() error {
	return call(func() C.carole_result { return C.carole_barrier(s.handle, nil) })
}

// Sum adds up the tensors of all ranks in place.
func (s *Session) Sum(name string, tensor []float32) error {
	if len(tensor) == 0 {
		return fmt.Errorf("%s: an empty tensor", name)
	}
	text := C.CString(name)
	defer C.free(unsafe.Pointer(text))
	// The options are copied to C's memory: Go's may hold no pointer into it across a call.
	options := (*C.carole_options)(C.calloc(1, C.sizeof_carole_options))
	defer C.free(unsafe.Pointer(options))
	options.size = C.sizeof_carole_options
	options.name = text
	data := unsafe.Pointer(&tensor[0])
	count := C.size_t(len(tensor))
	return call(func() C.carole_result {
		return C.carole_all_reduce(s.handle, data, data, count, C.CAROLE_F32, C.CAROLE_SUM, options)
	})
}

// Python functions that run in the default floating-point environment: kernels/environment.py.
#include <Python.h>

#include <structmember.h>

#include <cstddef>

#include "../include/environment.hpp"

namespace {

// A callable in place of `function`; in a class it becomes a method, as functions do. Attributes are those that
// functools.update_wrapper copies.
struct Guarded {
    PyObject_HEAD
    vectorcallfunc call;
    PyObject *function, *dict, *weak;
};

Guarded *of(PyObject *self) { return reinterpret_cast<Guarded *>(self); }

PyObject *call(PyObject *self, PyObject *const *arguments, std::size_t count, PyObject *names) {
    const DefaultEnvironment environment(true);
    return PyObject_Vectorcall(of(self)->function, arguments, count, names);
}

PyObject *make(PyTypeObject *type, PyObject *arguments, PyObject *) {
    PyObject *function;
    if (!PyArg_ParseTuple(arguments, "O:guarded", &function)) return nullptr;
    if (!PyCallable_Check(function)) return PyErr_Format(PyExc_TypeError, "guarded: expected a function");
    PyObject *self = type->tp_alloc(type, 0);
    if (!self) return nullptr;
    of(self)->call = call;
    of(self)->function = Py_NewRef(function);
    return self;
}

PyObject *bind(PyObject *self, PyObject *object, PyObject *) {
    return object && object != Py_None ? PyMethod_New(self, object) : Py_NewRef(self);
}

int traverse(PyObject *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(of(self)->function);
    Py_VISIT(of(self)->dict);
    return 0;
}

int clear(PyObject *self) {
    Py_CLEAR(of(self)->function);
    Py_CLEAR(of(self)->dict);
    return 0;
}

void free_guarded(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    if (of(self)->weak) PyObject_ClearWeakRefs(self);
    clear(self);
    type->tp_free(self);
    Py_DECREF(type);
}

PyObject *shown(PyObject *self) { return PyObject_Repr(of(self)->function); }

PyObject *reduce(PyObject *self, PyObject *) { return PyObject_GetAttrString(self, "__qualname__"); }

PyMemberDef members[] = {{"__vectorcalloffset__", T_PYSSIZET, offsetof(Guarded, call), READONLY, nullptr},
                         {"__dictoffset__", T_PYSSIZET, offsetof(Guarded, dict), READONLY, nullptr},
                         {"__weaklistoffset__", T_PYSSIZET, offsetof(Guarded, weak), READONLY, nullptr},
                         {nullptr, 0, 0, 0, nullptr}};
PyGetSetDef getters[] = {{"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
                         {nullptr, nullptr, nullptr, nullptr, nullptr}};
PyMethodDef methods[] = {{"__reduce__", reduce, METH_NOARGS, nullptr}, {nullptr, nullptr, 0, nullptr}};
PyType_Slot slots[] = {{Py_tp_new, reinterpret_cast<void *>(make)},
                       {Py_tp_dealloc, reinterpret_cast<void *>(free_guarded)},
                       {Py_tp_traverse, reinterpret_cast<void *>(traverse)},
                       {Py_tp_clear, reinterpret_cast<void *>(clear)},
                       {Py_tp_call, reinterpret_cast<void *>(PyVectorcall_Call)},
                       {Py_tp_descr_get, reinterpret_cast<void *>(bind)},
                       {Py_tp_repr, reinterpret_cast<void *>(shown)},
                       {Py_tp_getattro, reinterpret_cast<void *>(PyObject_GenericGetAttr)},
                       {Py_tp_setattro, reinterpret_cast<void *>(PyObject_GenericSetAttr)},
                       {Py_tp_members, members},
                       {Py_tp_getset, getters},
                       {Py_tp_methods, methods},
                       {0, nullptr}};
PyType_Spec spec = {"kernels._native.guarded", sizeof(Guarded), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR,
                    slots};

}  // namespace

PyObject *guarded_type() { return PyType_FromSpec(&spec); }

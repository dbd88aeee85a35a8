import leaf
import numpy

MODULES = [leaf, numpy]
